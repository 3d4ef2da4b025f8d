/* Messages of librdkafka into the buffers of Arrow arrays.
 *
 * Two passes over the same messages: the first adds up how much memory is needed, the second copies.
 * The second is given the sums of the first and never writes beyond them. Functions of librdkafka are
 * handed in, as the library that has them was loaded by somebody else. */
#include "laminar.h"

#include <string.h>

/* rd_kafka_message_t, as rdkafka.h of version 2 has it; checked at run time before the first use. */
struct message {
    int32_t error;
    void *topic;
    int32_t partition;
    void *value;
    size_t value_bytes;
    void *key;
    size_t key_bytes;
    int64_t offset;
    void *private;
};

struct calls {
    void (*destroy)(struct message *);
    int64_t (*timestamp)(const struct message *, int *kind);
    int (*headers)(const struct message *, void **headers);
    int (*header)(const void *headers, size_t place, const char **name, const void **value, size_t *bytes);
};

/* What is wanted of each message besides its offset and value. */
enum { KEYS = 1, TIMESTAMPS = 2, HEADERS = 4 };

struct sums {
    int64_t messages;  /* Those without an error. */
    int64_t others;    /* Errors, and the end of the partition. */
    int64_t value_bytes;
    int64_t key_bytes;
    int64_t headers;
    int64_t header_name_bytes;
    int64_t header_value_bytes;
};

/* A column of bytes: n + 1 edges, a byte a row that says whether there is a value, and the bytes. */
struct bytes_out {
    int32_t *edges;
    uint8_t *valid;
    uint8_t *data;
};

struct out {
    int64_t *offsets;
    int64_t *timestamps;
    int32_t *header_edges; /* Of each message, into the headers. */
    int64_t *others;       /* The places of what is not a message. */
    struct bytes_out values;
    struct bytes_out keys;
    struct bytes_out header_names;
    struct bytes_out header_values;
};

static int add(int64_t *sum, size_t more) {
    if (more > (size_t)(LAMINAR_MOST_BYTES - *sum)) return LAMINAR_TOO_LARGE;
    *sum += (int64_t)more;
    return LAMINAR_OK;
}

/* The headers of a message, or NULL. */
static const void *headers_of(const struct calls *calls, const struct message *message) {
    void *found = NULL;
    return calls->headers(message, &found) == 0 ? found : NULL;
}

static int measure_headers(const struct calls *calls, const struct message *message, struct sums *sums) {
    const void *headers = headers_of(calls, message), *value;
    const char *name;
    size_t bytes;
    for (size_t place = 0; headers && !calls->header(headers, place, &name, &value, &bytes); place++) {
        if (add(&sums->headers, 1) || add(&sums->header_name_bytes, strlen(name)) ||
            add(&sums->header_value_bytes, value ? bytes : 0))
            return LAMINAR_TOO_LARGE;
    }
    return LAMINAR_OK;
}

LAMINAR_EXPORT int laminar_measure(
    struct message *const *messages, int64_t count, const struct calls *calls, int wanted, struct sums *sums) {
    memset(sums, 0, sizeof *sums);
    for (int64_t place = 0; place < count; place++) {
        const struct message *message = messages[place];
        if (message->error) {
            sums->others++;
            continue;
        }
        sums->messages++;
        if (add(&sums->value_bytes, message->value ? message->value_bytes : 0)) return LAMINAR_TOO_LARGE;
        if ((wanted & KEYS) && add(&sums->key_bytes, message->key ? message->key_bytes : 0))
            return LAMINAR_TOO_LARGE;
        if ((wanted & HEADERS) && measure_headers(calls, message, sums)) return LAMINAR_TOO_LARGE;
    }
    return LAMINAR_OK;
}

/* Copy one value to its row. `used` is how much of `limit` bytes is taken. */
static int put(struct bytes_out *out, int64_t row, const void *value, size_t bytes, int64_t *used, int64_t limit) {
    if (!value) bytes = 0;
    if (bytes > (size_t)(limit - *used)) return LAMINAR_CHANGED;
    if (bytes) memcpy(out->data + *used, value, bytes);
    *used += (int64_t)bytes;
    out->valid[row] = value != NULL;
    out->edges[row + 1] = (int32_t)*used;
    return LAMINAR_OK;
}

/* Copy all that `laminar_measure` has counted in the same messages. */
LAMINAR_EXPORT int laminar_gather(
    struct message *const *messages, int64_t count, const struct calls *calls, int wanted, const struct sums *sums,
    struct out *out) {
    struct sums done = {0};
    out->values.edges[0] = 0;
    if (wanted & KEYS) out->keys.edges[0] = 0;
    if (wanted & HEADERS) out->header_edges[0] = out->header_names.edges[0] = out->header_values.edges[0] = 0;
    for (int64_t place = 0; place < count; place++) {
        const struct message *message = messages[place];
        if (message->error) {
            if (done.others >= sums->others) return LAMINAR_CHANGED;
            out->others[done.others++] = place;
            continue;
        }
        int64_t row = done.messages++;
        if (row >= sums->messages) return LAMINAR_CHANGED;
        out->offsets[row] = message->offset;
        if (put(&out->values, row, message->value, message->value_bytes, &done.value_bytes, sums->value_bytes))
            return LAMINAR_CHANGED;
        if ((wanted & KEYS) &&
            put(&out->keys, row, message->key, message->key_bytes, &done.key_bytes, sums->key_bytes))
            return LAMINAR_CHANGED;
        if (wanted & TIMESTAMPS) {
            int kind;
            out->timestamps[row] = calls->timestamp(message, &kind);
        }
        if (wanted & HEADERS) {
            const void *headers = headers_of(calls, message), *value;
            const char *name;
            size_t bytes;
            for (size_t each = 0; headers && !calls->header(headers, each, &name, &value, &bytes); each++) {
                if (done.headers >= sums->headers ||
                    put(&out->header_names, done.headers, name, strlen(name), &done.header_name_bytes,
                        sums->header_name_bytes) ||
                    put(&out->header_values, done.headers, value, bytes, &done.header_value_bytes,
                        sums->header_value_bytes))
                    return LAMINAR_CHANGED;
                done.headers++;
            }
            out->header_edges[row + 1] = (int32_t)done.headers;
        }
    }
    /* A row that was counted and is not there would be made of whatever the memory held. */
    return memcmp(&done, sums, sizeof done) ? LAMINAR_CHANGED : LAMINAR_OK;
}

/* Give messages back. Each place is emptied first, so that none is ever given back twice. */
LAMINAR_EXPORT void laminar_give_back(struct message **messages, int64_t count, const struct calls *calls) {
    for (int64_t place = 0; place < count; place++) {
        struct message *message = messages[place];
        messages[place] = NULL;
        if (message) calls->destroy(message);
    }
}
