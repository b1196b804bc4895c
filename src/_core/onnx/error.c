#include "error.h"

#include <stdarg.h>
#include <stdio.h>

bool ht_fail(ht_error *error, int64_t offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    error->offset = offset;
    return false;
}

bool ht_fail_memory(ht_error *error)
{
    error->no_memory = true;
    return ht_fail(error, -1, "out of memory");
}

bool ht_fail_about(ht_error *error, int64_t offset, int64_t subject, int64_t length, const char *message)
{
    error->has_subject = true;
    error->subject = ht_make_span(subject, length > HT_MAX_NAME ? HT_MAX_NAME : length);
    return ht_fail(error, offset, "%s", message);
}

bool ht_in_place(ht_error *error, ht_place place, int64_t begin, int64_t end, int64_t ordinal)
{
    if (error->place_count < HT_MAX_PLACES) {
        error->place[error->place_count] = place;
        error->place_begin[error->place_count] = begin;
        error->place_end[error->place_count] = end;
        error->ordinal[error->place_count++] = ordinal;
    }
    return false;
}
