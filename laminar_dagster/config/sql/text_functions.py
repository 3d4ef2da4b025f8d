"""Which functions take and return text, by which constant strings are followed in expressions.

Of a function in none of these sets it is not known.
"""

from __future__ import annotations

from typing import Final

# Functions from text to text; Spark does not convert their string arguments.
_TEXT_OF_TEXT: Final = frozenset(
    "base64 btrim char chr collate concat concat_ws elt format_string get_json_object hex initcap "
    "lcase left lower lpad ltrim make_valid_utf8 mask md5 overlay parse_url printf quote "
    "regexp_extract regexp_replace regexp_substr repeat replace right rpad rtrim sha sha1 sha2 "
    "soundex space split_part string substr substring substring_index translate trim "
    "try_parse_url try_url_decode ucase upper url_decode url_encode validate_utf8".split()
)
_TEXT_OF_OTHERS: Final = frozenset(
    "bin conv date_format dayname format_number from_unixtime monthname to_char to_csv to_json "
    "to_varchar typeof".split()
)
# Functions that do not convert their string arguments, and return something else than text.
_OTHERS_OF_TEXT: Final = frozenset(
    "array_append array_contains array_position array_prepend array_remove ascii bit_length "
    "char_length character_length contains crc32 endswith find_in_set from_csv from_json hash "
    "ilike instr json_array_length len length levenshtein like locate luhn_check "
    "map_contains_key named_struct octet_length parse_json position regexp regexp_count "
    "regexp_extract_all regexp_instr regexp_like rlike sentences split startswith str_to_map "
    "struct to_number try_parse_json try_to_number unbase64 unhex xxhash64".split()
)
_TIMES_AND_NUMBERS: Final = frozenset(
    "add_months array bigint binary boolean convert_timezone date date_add date_diff "
    "date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayofmonth "
    "dayofweek dayofyear decimal double epoch_time float from_utc_timestamp hour int last_day "
    "make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz "
    "make_timestamp_ntz make_ym_interval map minute month months_between next_day quarter second "
    "sequence smallint timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd "
    "timestampdiff tinyint to_binary to_date to_timestamp to_timestamp_ltz to_timestamp_ntz "
    "to_unix_timestamp to_utc_timestamp trunc try_to_date try_to_timestamp unix_date unix_micros "
    "unix_millis unix_seconds unix_timestamp weekday weekofyear year".split()
)

GIVES_TEXT: Final = _TEXT_OF_TEXT | _TEXT_OF_OTHERS
TAKES_TEXT: Final = _TEXT_OF_TEXT | _OTHERS_OF_TEXT
GIVES_NO_TEXT: Final = _OTHERS_OF_TEXT | _TIMES_AND_NUMBERS
# Functions that can build any text from numbers.
MAKES_TEXT: Final = frozenset({"char", "chr", "conv"})
