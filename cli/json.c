/* Json: see json.h. */
#include "json.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "printable.h"
#include "when.h"

#define MEMBER_SIZE_MAX 64

int idem_json_set_owned(json_t *object, const char *name, json_t *value)
{
    return value != NULL && json_object_set_new(object, name, value) == 0 ? IDEM_OK
                                                                          : IDEM_ERR_NOMEM;
}

static int bytes_set_base64(json_t *object, const char *name, struct idem_bytes bytes)
{
    char member[MEMBER_SIZE_MAX];
    size_t size = sodium_base64_encoded_len(bytes.size, sodium_base64_VARIANT_ORIGINAL);
    char *text = idem_malloc(size);
    int error;

    if (text == NULL) {
        return IDEM_ERR_NOMEM;
    }
    sodium_bin2base64(text, size, bytes.data, bytes.size, sodium_base64_VARIANT_ORIGINAL);
    snprintf(member, sizeof member, "%s_base64", name);
    error = idem_json_set_text(object, member, text);
    idem_free(text);
    return error;
}

int idem_json_set_bytes(json_t *object, const char *name, struct idem_bytes bytes)
{
    if (!idem_utf8_valid(bytes)) {
        return bytes_set_base64(object, name, bytes);
    }
    return idem_json_set_owned(
        object, name, json_stringn(bytes.size > 0 ? (const char *)bytes.data : "", bytes.size));
}

int idem_json_set_instant(json_t *object, const char *name, int64_t instant_us)
{
    char text[IDEM_INSTANT_TEXT_SIZE];

    if (instant_us == IDEM_NEVER_US) {
        return idem_json_set_owned(object, name, json_null());
    }
    return idem_json_set_text(object, name, idem_instant_format_exact(instant_us, text));
}

/* What is no UTF-8 in it is written as for people, for JSON has no other way. */
int idem_json_set_text(json_t *object, const char *name, const char *text)
{
    char *shown;
    int error;

    if (text == NULL) {
        return idem_json_set_owned(object, name, json_null());
    }
    if (idem_utf8_valid(idem_bytes_from_text(text))) {
        return idem_json_set_owned(object, name, json_string(text));
    }
    error = idem_printable_make(idem_bytes_from_text(text), 0, &shown);
    if (error == IDEM_OK) {
        error = idem_json_set_owned(object, name, json_string(shown));
        idem_free(shown);
    }
    return error;
}

int idem_json_set_number(json_t *object, const char *name, int64_t number)
{
    return idem_json_set_owned(object, name, json_integer(number));
}

int idem_json_set_flag(json_t *object, const char *name, bool flag)
{
    return idem_json_set_owned(object, name, json_boolean(flag));
}

int idem_json_print(const json_t *value, bool bare)
{
    /* ASCII alone: the same to a program, and no mark of Unicode acts on the terminal of a person.
     */
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII);

    if (text == NULL) {
        return IDEM_ERR_NOMEM;
    }
    printf("%s%s", text, bare ? "" : "\n");
    free(text); /* jansson's own allocator */
    return IDEM_OK;
}
