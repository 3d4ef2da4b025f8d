/* JSON objects, one a record, into columns of plain types.
 *
 * Takes the usual spellings alone, and says of every other record that it is not sure: an escape in a
 * string, a number that does not fit, a name that stands twice, anything that is no JSON. Those are left
 * to the thorough decoder, which has the last word on what is good. What is taken here is taken there as
 * well, with the same value; so it does not matter which of the two has read a record. */
#define _GNU_SOURCE
#include "laminar.h"

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

enum kind { BOOL, INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, STRING, MICROS, DAYS, DECIMAL };

/* A declared column. */
struct column {
    const char *name;
    int64_t name_bytes;
    int32_t kind;
    int32_t precision; /* Of a decimal. */
    int32_t scale;
    int32_t unused;
    void *values;      /* One for each record; of a string, where it begins. */
    int32_t *lengths;  /* Of strings. */
    uint8_t *valid;    /* A byte for each record. */
    int64_t bytes;     /* Of all strings: an answer, as is the next. */
    int64_t nulls;
    int64_t last;      /* The record that has set it last. */
};

#define DEEPEST 64
/* The longest spelling of a number that is looked at. */
#define NUMBER_BYTES 64

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

struct text {
    const uint8_t *at, *end;
};

static void skip_space(struct text *text) {
    while (text->at < text->end &&
           (*text->at == ' ' || *text->at == '\n' || *text->at == '\r' || *text->at == '\t'))
        text->at++;
}

static bool take(struct text *text, uint8_t wanted) {
    if (text->at == text->end || *text->at != wanted) return false;
    text->at++;
    return true;
}

static bool take_word(struct text *text, const char *word, size_t bytes) {
    if ((size_t)(text->end - text->at) < bytes || memcmp(text->at, word, bytes)) return false;
    text->at += bytes;
    return true;
}

static bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

static bool is_continued(const uint8_t *at, const uint8_t *end, int more) {
    if (end - at <= more) return false;
    for (int each = 1; each <= more; each++)
        if ((at[each] & 0xC0) != 0x80) return false;
    return true;
}

/* UTF-8 without overlong forms, surrogates and what is beyond Unicode. */
static bool is_utf8(const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        uint8_t first = *at;
        if (first < 0x80) {
            at++;
        } else if (first >= 0xC2 && first <= 0xDF) {
            if (!is_continued(at, end, 1)) return false;
            at += 2;
        } else if (first >= 0xE0 && first <= 0xEF) {
            if (!is_continued(at, end, 2)) return false;
            if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] >= 0xA0)) return false;
            at += 3;
        } else if (first >= 0xF0 && first <= 0xF4) {
            if (!is_continued(at, end, 3)) return false;
            if ((first == 0xF0 && at[1] < 0x90) || (first == 0xF4 && at[1] >= 0x90)) return false;
            at += 4;
        } else {
            return false;
        }
    }
    return true;
}

/* Which of eight bytes is the first that is a quote, a backslash, a control character or not ASCII; 8 if none.
 *
 * A borrow reaches upwards alone, so the lowest mark is always right. */
static int first_special(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
    uint64_t marks = (((quote - ones) & ~quote) | ((slash - ones) & ~slash) | (word - ones * 0x20) | word) & highs;
    return marks ? __builtin_ctzll(marks) >> 3 : 8;
}

/* A string without escapes; `begin` and `end` are what is between the quotes. */
static bool take_string(struct text *text, const uint8_t **begin, const uint8_t **end) {
    if (!take(text, '"')) return false;
    const uint8_t *at = text->at;
    bool is_ascii = true;
    for (;;) {
        for (int step = 8; step == 8 && text->end - at >= 8; at += step) {
            uint64_t word;
            memcpy(&word, at, 8);
            step = first_special(word);
        }
        if (at == text->end || *at < 0x20 || *at == '\\') return false;
        if (*at == '"') break;
        if (*at >= 0x80) is_ascii = false;
        at++;
    }
    *begin = text->at;
    *end = at;
    text->at = at + 1;
    return is_ascii || is_utf8(*begin, *end);
}

/* A number as it is spelt: digits without the point, how many stand behind it, and the exponent. */
struct number {
    const uint8_t *begin, *end;
    uint64_t digits;
    int significant, fraction;
    bool negative, plain;
};

static bool take_number(struct text *text, struct number *number) {
    const uint8_t *at = text->at, *end = text->end;
    *number = (struct number){.begin = at, .plain = true};
    if (at < end && *at == '-') number->negative = true, at++;
    const uint8_t *first = at;
    for (; at < end && is_digit(*at); at++) {
        if (number->digits || *at != '0') number->significant++;
        if (number->significant <= 19) number->digits = number->digits * 10 + (uint64_t)(*at - '0');
    }
    if (at == first || (*first == '0' && at - first > 1)) return false;
    if (at < end && *at == '.') {
        first = ++at;
        for (; at < end && is_digit(*at); at++) {
            if (number->digits || *at != '0') number->significant++;
            if (number->significant <= 19) number->digits = number->digits * 10 + (uint64_t)(*at - '0');
        }
        if (at == first || at - first > NUMBER_BYTES) return false;
        number->fraction = (int)(at - first);
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        number->plain = false;
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        first = at;
        while (at < end && is_digit(*at)) at++;
        if (at == first) return false;
    }
    number->end = text->at = at;
    return true;
}

static bool as_integer(const struct number *number, int64_t low, int64_t high, int64_t *value) {
    if (!number->plain || number->fraction || number->significant > 18) return false;
    /* No negative zero among whole numbers. */
    if (number->negative && !number->digits) return false;
    *value = number->negative ? -(int64_t)number->digits : (int64_t)number->digits;
    return *value >= low && *value <= high;
}

/* The nearest double. Whole numbers below 2^53 and powers of ten up to 22 are exact, so one operation
 * rounds once; all others are read by the C library, in the C locale. */
static bool as_double(const struct number *number, locale_t c, double *value) {
    if (number->plain && number->significant <= 19 && number->digits <= (UINT64_C(1) << 53) &&
        number->fraction <= 22) {
        double whole = (double)number->digits / POWERS[number->fraction];
        *value = number->negative ? -whole : whole;
        return true;
    }
    char spelt[NUMBER_BYTES + 1];
    ptrdiff_t bytes = number->end - number->begin;
    if (bytes > NUMBER_BYTES) return false;
    memcpy(spelt, number->begin, (size_t)bytes);
    spelt[bytes] = 0;
    char *end;
    *value = strtod_l(spelt, &end, c);
    return *end == 0 && isfinite(*value) && (*value == 0 || isnormal(*value));
}

/* The nearest float. Rounded from the nearest double it is that too, but where the double stands half way
 * between two floats, and the number perhaps beside it: those are left, as is what rounds to infinity. */
static bool as_single(const struct number *number, locale_t c, float *value) {
    double near;
    uint64_t bits;
    if (!as_double(number, c, &near)) return false;
    memcpy(&bits, &near, sizeof bits);
    *value = (float)near;
    return (bits & ((UINT64_C(1) << 29) - 1)) != UINT64_C(1) << 28 && isfinite(*value) &&
           (*value == 0 ? near == 0 : isnormal(*value));
}

static bool as_decimal(const struct number *number, int precision, int scale, int64_t *value) {
    if (!number->plain || number->significant > 18 || number->fraction > scale) return false;
    uint64_t digits = number->digits, limit = 1;
    for (int each = number->fraction; each < scale; each++) {
        if (digits >= UINT64_C(100000000000000000)) return false;
        digits *= 10;
    }
    for (int each = 0; each < precision; each++) limit *= 10;
    if (digits >= limit) return false;
    *value = number->negative ? -(int64_t)digits : (int64_t)digits;
    return true;
}

/* So many digits. */
static bool take_digits(struct text *text, int count, int *value) {
    if (text->end - text->at < count) return false;
    *value = 0;
    for (int each = 0; each < count; each++) {
        if (!is_digit(text->at[each])) return false;
        *value = *value * 10 + (text->at[each] - '0');
    }
    text->at += count;
    return true;
}

/* Days since 1970, in the Gregorian calendar. */
static bool take_date(struct text *text, int64_t *days) {
    static const int LENGTHS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (!take_digits(text, 4, &year) || !take(text, '-') || !take_digits(text, 2, &month) || !take(text, '-') ||
        !take_digits(text, 2, &day))
        return false;
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1000 || month < 1 || month > 12 || day < 1 ||
        day > LENGTHS[month - 1] + (month == 2 && is_leap))
        return false;
    /* Years that begin in March, so that the odd day is their last. */
    int64_t years = month <= 2 ? year - 1 : year, era = years / 400, of_era = years - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    *days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
    return true;
}

static bool take_moment(struct text *text, int64_t *micros) {
    int64_t days;
    int hour, minute, second, digit, fraction = 0, zone_hours, zone_minutes;
    if (!take_date(text, &days) || !(take(text, 'T') || take(text, ' ')) || !take_digits(text, 2, &hour) ||
        !take(text, ':') || !take_digits(text, 2, &minute) || !take(text, ':') || !take_digits(text, 2, &second))
        return false;
    if (hour > 23 || minute > 59 || second > 59) return false;
    if (take(text, '.')) {
        int unit = 100000;
        if (!take_digits(text, 1, &digit)) return false;
        do {
            if (!unit) return false;
            fraction += digit * unit;
            unit /= 10;
        } while (take_digits(text, 1, &digit));
    }
    int64_t seconds = days * 86400 + hour * 3600 + minute * 60 + second;
    if (text->at < text->end && (*text->at == '+' || *text->at == '-')) {
        int sign = *text->at++ == '+' ? 1 : -1;
        if (!take_digits(text, 2, &zone_hours) || !take(text, ':') || !take_digits(text, 2, &zone_minutes))
            return false;
        if (zone_hours > 23 || zone_minutes > 59) return false;
        seconds -= sign * (zone_hours * 3600 + zone_minutes * 60);
    } else {
        take(text, 'Z');
    }
    *micros = seconds * 1000000 + fraction;
    return true;
}

/* Step over a value of a field that is not declared. */
static bool skip_value(struct text *text, int depth) {
    const uint8_t *begin, *end;
    struct number number;
    if (depth > DEEPEST || text->at == text->end) return false;
    switch (*text->at) {
    case '"': return take_string(text, &begin, &end);
    case 't': return take_word(text, "true", 4);
    case 'f': return take_word(text, "false", 5);
    case 'n': return take_word(text, "null", 4);
    case '{':
        text->at++;
        skip_space(text);
        if (take(text, '}')) return true;
        for (;;) {
            skip_space(text);
            if (!take_string(text, &begin, &end)) return false;
            skip_space(text);
            if (!take(text, ':')) return false;
            skip_space(text);
            if (!skip_value(text, depth + 1)) return false;
            skip_space(text);
            if (take(text, '}')) return true;
            if (!take(text, ',')) return false;
        }
    case '[':
        text->at++;
        skip_space(text);
        if (take(text, ']')) return true;
        for (;;) {
            skip_space(text);
            if (!skip_value(text, depth + 1)) return false;
            skip_space(text);
            if (take(text, ']')) return true;
            if (!take(text, ',')) return false;
        }
    default: return take_number(text, &number) && number.end - number.begin <= NUMBER_BYTES && number.plain;
    }
}

/* The value of a declared field that is not null. */
static bool take_value(struct text *text, const uint8_t *data, struct column *column, int64_t row, locale_t c) {
    static const int64_t HIGHEST[] = {[INT8] = INT8_MAX, [INT16] = INT16_MAX, [INT32] = INT32_MAX, [INT64] = INT64_MAX};
    const uint8_t *begin, *end;
    struct number number;
    int64_t whole;
    switch ((enum kind)column->kind) {
    case BOOL:
        if (take_word(text, "true", 4)) return ((uint8_t *)column->values)[row] = 1, true;
        return ((uint8_t *)column->values)[row] = 0, take_word(text, "false", 5);
    case INT8:
    case INT16:
    case INT32:
    case INT64:
        whole = HIGHEST[column->kind];
        if (!take_number(text, &number) || !as_integer(&number, -whole - 1, whole, &whole)) return false;
        if (column->kind == INT8) ((int8_t *)column->values)[row] = (int8_t)whole;
        else if (column->kind == INT16) ((int16_t *)column->values)[row] = (int16_t)whole;
        else if (column->kind == INT32) ((int32_t *)column->values)[row] = (int32_t)whole;
        else ((int64_t *)column->values)[row] = whole;
        return true;
    case FLOAT32:
        return take_number(text, &number) && as_single(&number, c, &((float *)column->values)[row]);
    case FLOAT64:
        return take_number(text, &number) && as_double(&number, c, &((double *)column->values)[row]);
    case STRING:
        if (!take_string(text, &begin, &end)) return false;
        ((int64_t *)column->values)[row] = begin - data;
        column->lengths[row] = (int32_t)(end - begin);
        column->bytes += end - begin;
        return true;
    case MICROS:
        return take(text, '"') && take_moment(text, &((int64_t *)column->values)[row]) && take(text, '"');
    case DAYS:
        if (!take(text, '"') || !take_date(text, &whole) || !take(text, '"')) return false;
        ((int32_t *)column->values)[row] = (int32_t)whole;
        return true;
    case DECIMAL: {
        bool is_text = take(text, '"');
        if (!take_number(text, &number) || !as_decimal(&number, column->precision, column->scale, &whole))
            return false;
        ((int64_t *)column->values)[2 * row] = whole;
        ((int64_t *)column->values)[2 * row + 1] = whole < 0 ? -1 : 0;
        return !is_text || take(text, '"');
    }
    }
    return false;
}

/* The declared column of a name; records mostly have their fields in one order. */
static struct column *column_of(
    struct column *columns, int64_t count, const uint8_t *name, int64_t bytes, int64_t *expected) {
    for (int64_t each = 0; each < count; each++) {
        int64_t place = *expected + each;
        if (place >= count) place -= count;
        struct column *column = &columns[place];
        if (column->name_bytes == bytes && !memcmp(column->name, name, (size_t)bytes)) {
            *expected = place + 1 == count ? 0 : place + 1;
            return column;
        }
    }
    return NULL;
}

static bool take_record(
    struct text *text, const uint8_t *data, struct column *columns, int64_t count, int64_t row, locale_t c) {
    int64_t expected = 0;
    skip_space(text);
    if (!take(text, '{')) return false;
    skip_space(text);
    if (!take(text, '}')) {
        for (;;) {
            const uint8_t *begin, *end;
            skip_space(text);
            if (!take_string(text, &begin, &end)) return false;
            skip_space(text);
            if (!take(text, ':')) return false;
            skip_space(text);
            struct column *column = column_of(columns, count, begin, end - begin, &expected);
            if (!column) {
                if (!skip_value(text, 0)) return false;
            } else {
                if (column->last == row) return false;
                column->last = row;
                if (!take_word(text, "null", 4)) {
                    if (!take_value(text, data, column, row, c)) return false;
                    column->valid[row] = 1;
                }
            }
            skip_space(text);
            if (take(text, '}')) break;
            if (!take(text, ',')) return false;
        }
    }
    skip_space(text);
    return text->at == text->end;
}

/* Read records into columns. Memory for values, lengths and validity is zero, and has room for each record.
 *
 * `unsure` is 1 for each record that is left to the thorough decoder; nothing in its row means anything.
 * Returns how many there are, or LAMINAR_TOO_LARGE. */
LAMINAR_EXPORT int64_t laminar_json_columns(
    const uint8_t *data, int64_t bytes, const int64_t *starts, const int64_t *ends, int64_t records,
    struct column *columns, int64_t count, uint8_t *unsure) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (bytes > LAMINAR_MOST_BYTES || !c) {
        if (c) freelocale(c);
        return LAMINAR_TOO_LARGE;
    }
    int64_t found = 0;
    for (int64_t each = 0; each < count; each++) {
        columns[each].last = -1;
        columns[each].bytes = columns[each].nulls = 0;
    }
    for (int64_t row = 0; row < records; row++) {
        bool is_inside = starts[row] >= 0 && starts[row] <= ends[row] && ends[row] <= bytes;
        struct text text = {data + (is_inside ? starts[row] : 0), data + (is_inside ? ends[row] : 0)};
        unsure[row] = !take_record(&text, data, columns, count, row, c);
        found += unsure[row];
    }
    for (int64_t each = 0; each < count; each++)
        for (int64_t row = 0; row < records; row++) columns[each].nulls += !columns[each].valid[row];
    freelocale(c);
    return found;
}

/* Lay the strings of a column end to end; `room` is how many bytes `into` has. */
LAMINAR_EXPORT int laminar_copy_strings(
    const uint8_t *data, int64_t bytes, const struct column *column, int64_t records, int32_t *edges, uint8_t *into,
    int64_t room) {
    const int64_t *starts = column->values;
    int64_t used = 0;
    if (room > LAMINAR_MOST_BYTES) return LAMINAR_TOO_LARGE;
    edges[0] = 0;
    for (int64_t row = 0; row < records; row++) {
        int64_t length = column->lengths[row];
        if (length < 0 || length > room - used || starts[row] < 0 || starts[row] > bytes - length)
            return LAMINAR_CHANGED;
        memcpy(into + used, data + starts[row], (size_t)length);
        used += length;
        edges[row + 1] = (int32_t)used;
    }
    return used == room ? LAMINAR_OK : LAMINAR_CHANGED;
}
