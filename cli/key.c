/*
 * Key: `idem key`, makes keys. Three ways, as there are three kinds of operation:
 *
 *   random    a new key for a new operation (UUID, RFC 9562)
 *   semantic  the operation has a name already: "order_{order_id}_pay_{user_id}"
 *   content   the payload is the operation: its whole SHA-256
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#include <idem/key.h>
#include <idem/limits.h>

#include "args.h"
#include "json.h"
#include "when.h"

#define UUID_TEXT_SIZE 37
#define KEY_TEXT_SIZE  (IDEM_KEY_SIZE_MAX + 1)

struct key_options {
    bool uuid4, uuid7, json;
    const char *template, *hash;
    struct idem_text_list set;
};

static const char about[] =
    "Makes a key for the Idempotency-Key header. Without options: a random UUID, version 4. Make "
    "the key once an operation, keep it with the operation, and send the same one with every "
    "retry.";

static const char examples[] =
    "  idem key                                   550e8400-e29b-41d4-a716-446655440000\n"
    "  idem key --template 'order_{order_id}_pay_{user_id}' \\\n"
    "      --set order_id=20260413001 --set user_id=user123\n"
    "  idem key --hash request.json               SHA-256 of the payload\n";

/* --- random -------------------------------------------------------------------------------- */

static void uuid_format(const uint8_t bytes[16], char ret_text[UUID_TEXT_SIZE])
{
    char *out = ret_text;

    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *out++ = '-';
        }
        out += snprintf(out, 3, "%02x", bytes[i]);
    }
}

static void uuid_make(bool by_time, char ret_text[UUID_TEXT_SIZE])
{
    uint64_t now_ms = (uint64_t)(idem_instant_now_us() / 1000);
    uint8_t bytes[16];

    randombytes_buf(bytes, sizeof bytes);
    if (by_time) {
        /* RFC 9562, 5.7: 48 bits of milliseconds, big-endian, then random bits. */
        for (size_t i = 0; i < 6; i++) {
            bytes[i] = (uint8_t)(now_ms >> (40 - 8 * i));
        }
    }
    /* RFC 9562, 4.1 and 4.2: variant and version. */
    bytes[6] = (uint8_t)((bytes[6] & 0x0F) | (by_time ? 0x70 : 0x40));
    bytes[8] = (uint8_t)((bytes[8] & 0x3F) | 0x80);
    uuid_format(bytes, ret_text);
}

/* --- semantic ------------------------------------------------------------------------------ */

/* A piece of the template: some text, then a name unless it is the last. */
struct piece {
    const char *text, *name;
    size_t text_size, name_size;
    const char *value;
    size_t value_size;
};

struct template
{
    struct piece pieces[IDEM_LIST_MAX + 1];
    size_t count;
};

static bool is_name(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char c = text[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-' || c == '.')) {
            return false;
        }
    }
    return size > 0;
}

static int template_parse(const struct idem_usage *usage, const char *text,
                          struct template *ret_template)
{
    struct template *template = ret_template;

    *template = (struct template){0};
    for (;;) {
        struct piece *piece = &template->pieces[template->count++];
        const char *end;

        piece->text = text;
        piece->text_size = strcspn(text, "{}");
        text += piece->text_size;
        if (*text == '\0') {
            return IDEM_EXIT_OK;
        }
        end = strchr(text, '}');
        if (*text == '}' || end == NULL || !is_name(text + 1, (size_t)(end - text) - 1)) {
            return idem_args_wrong(usage, "--template: write {name} where a value goes, with "
                                          "letters, digits and _ - . in the name");
        }
        piece->name = text + 1;
        piece->name_size = (size_t)(end - text) - 1;
        text = end + 1;
        if (template->count == IDEM_LIST_MAX + 1) {
            return idem_args_wrong(usage, "--template: over %d names", IDEM_LIST_MAX);
        }
        if (*text == '{') {
            return idem_args_wrong(usage,
                                   "--template: put some text between {%.*s} and the next "
                                   "name, or two operations may get one key",
                                   (int)piece->name_size, piece->name);
        }
    }
}

static bool template_has(const struct template *template, const char *name, size_t size)
{
    for (size_t i = 0; i + 1 < template->count; i++) {
        const struct piece *piece = &template->pieces[i];

        if (piece->name_size == size && memcmp(piece->name, name, size) == 0) {
            return true;
        }
    }
    return false;
}

static const char *value_find(const struct idem_text_list *set, const struct piece *piece)
{
    for (size_t i = 0; i < set->count; i++) {
        const char *item = set->items[i];

        if (strcspn(item, "=") == piece->name_size &&
            memcmp(item, piece->name, piece->name_size) == 0) {
            return item + piece->name_size + 1;
        }
    }
    return NULL;
}

/* Each --set is name=value, names a place in the template, and comes once. */
static int set_check(const struct idem_usage *usage, const struct template *template,
                     const struct idem_text_list *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const char *item = set->items[i];
        size_t name_size = strcspn(item, "=");

        if (item[name_size] != '=' || item[name_size + 1] == '\0') {
            return idem_args_wrong(usage, "--set %s: write name=value, with a value", item);
        }
        if (!template_has(template, item, name_size)) {
            return idem_args_wrong(usage, "--set %s: the template has no {%.*s}", item,
                                   (int)name_size, item);
        }
        for (size_t j = 0; j < i; j++) {
            if (strncmp(set->items[j], item, name_size + 1) == 0) {
                return idem_args_wrong(usage, "--set %s: the name is given twice", item);
            }
        }
    }
    return IDEM_EXIT_OK;
}

static int template_fill(const struct idem_usage *usage, struct template *template,
                         const struct idem_text_list *set, char ret_key[KEY_TEXT_SIZE])
{
    size_t size = 0;

    for (size_t i = 0; i < template->count; i++) {
        struct piece *piece = &template->pieces[i];

        if (piece->name != NULL) {
            piece->value = value_find(set, piece);
            if (piece->value == NULL) {
                return idem_args_wrong(usage, "the template needs --set %.*s=VALUE",
                                       (int)piece->name_size, piece->name);
            }
            piece->value_size = strlen(piece->value);
        }
        if (size + piece->text_size + piece->value_size > IDEM_KEY_SIZE_DEFAULT) {
            return idem_args_wrong(usage,
                                   "the key is over %d bytes, which gateways refuse unless "
                                   "told otherwise; shorten it, or use --hash",
                                   IDEM_KEY_SIZE_DEFAULT);
        }
        memcpy(ret_key + size, piece->text, piece->text_size);
        size += piece->text_size;
        if (piece->value_size > 0) {
            memcpy(ret_key + size, piece->value, piece->value_size);
            size += piece->value_size;
        }
    }
    ret_key[size] = '\0';
    return IDEM_EXIT_OK;
}

/*
 * Reads the key back by the template, each value ending where the text after it first occurs. If
 * that gives the same values, no other values make this key: were there others that passed this
 * check too, the one reading would have to give both.
 */
static const struct piece *template_ambiguity(const struct template *template, const char *key)
{
    const char *rest = key + template->pieces[0].text_size;

    for (size_t i = 0; i + 1 < template->count; i++) {
        const struct piece *piece = &template->pieces[i];
        const struct piece *next = &template->pieces[i + 1];
        size_t left = strlen(rest);
        size_t size = 0;

        if (next->text_size == 0) {
            /* Only the last name may end the template: its value is all that is left. */
            size = left;
        } else {
            while (size < left && strncmp(rest + size, next->text, next->text_size) != 0) {
                size++;
            }
        }
        if (size != piece->value_size) {
            return piece;
        }
        rest += size + next->text_size;
    }
    return NULL;
}

static int semantic_make(const struct idem_usage *usage, const struct key_options *options,
                         char ret_key[KEY_TEXT_SIZE])
{
    struct template template;
    struct idem_key parsed;
    const struct piece *ambiguous;
    int outcome;
    int status = template_parse(usage, options->template, &template);

    if (status == IDEM_EXIT_OK && template.count == 1) {
        status = idem_args_wrong(usage, "--template has no {name} in it: every operation would get "
                                        "the same key");
    }
    if (status == IDEM_EXIT_OK) {
        status = set_check(usage, &template, &options->set);
    }
    if (status == IDEM_EXIT_OK) {
        status = template_fill(usage, &template, &options->set, ret_key);
    }
    if (status != IDEM_EXIT_OK) {
        return status;
    }
    ambiguous = template_ambiguity(&template, ret_key);
    if (ambiguous != NULL) {
        return idem_args_wrong(usage,
                               "the value of {%.*s} has in it what the template writes after "
                               "it, so another operation could get the same key; use another "
                               "separator",
                               (int)ambiguous->name_size, ambiguous->name);
    }
    /* A key that a gateway would read otherwise than it is written is worse than none. */
    outcome = idem_key_parse(idem_bytes_from_text(ret_key), IDEM_KEY_LENIENT, IDEM_KEY_SIZE_DEFAULT,
                             &parsed);
    if (outcome != IDEM_OK ||
        !idem_bytes_equal(idem_key_view(&parsed), idem_bytes_from_text(ret_key))) {
        return idem_args_wrong(usage,
                               "\"%s\" cannot be sent as a key: it takes visible ASCII "
                               "without blanks, quotes, commas, semicolons and backslashes",
                               ret_key);
    }
    return IDEM_EXIT_OK;
}

/* --- content ------------------------------------------------------------------------------- */

static int content_hash(int file, uint8_t ret_digest[crypto_hash_sha256_BYTES])
{
    crypto_hash_sha256_state state;
    uint8_t buffer[65536];
    ssize_t got;

    crypto_hash_sha256_init(&state);
    while ((got = read(file, buffer, sizeof buffer)) > 0) {
        crypto_hash_sha256_update(&state, buffer, (unsigned long long)got);
    }
    if (got < 0) {
        return IDEM_ERR_IO;
    }
    crypto_hash_sha256_final(&state, ret_digest);
    return IDEM_OK;
}

static int content_make(const char *path, char ret_key[KEY_TEXT_SIZE])
{
    bool standard_input = strcmp(path, "-") == 0;
    uint8_t digest[crypto_hash_sha256_BYTES];
    int file = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int error = file < 0 ? IDEM_ERR_IO : content_hash(file, digest);

    if (error != IDEM_OK) {
        idem_say_error("--hash: %s: %s", path, strerror(errno));
    } else {
        /* The whole digest, never cut: a shortened one meets others by accident. */
        sodium_bin2hex(ret_key, KEY_TEXT_SIZE, digest, sizeof digest);
    }
    if (file >= 0 && !standard_input) {
        close(file);
    }
    return error == IDEM_OK ? IDEM_EXIT_OK : IDEM_EXIT_FAILURE;
}

/* --- the command --------------------------------------------------------------------------- */

static int key_print(const struct key_options *options, const char *form, const char *key)
{
    json_t *object;
    int bad;

    if (!options->json) {
        puts(key);
        return idem_say_end(IDEM_EXIT_OK);
    }
    object = json_object();
    bad = object == NULL;
    if (bad == 0) {
        bad |= idem_json_set_text(object, "key", key);
        bad |= idem_json_set_text(object, "form", form);
        bad |= bad == 0 ? idem_json_print(object, false) : 0;
    }
    json_decref(object);
    if (bad != 0) {
        idem_say_error("%s", idem_error_text(IDEM_ERR_NOMEM));
        return IDEM_EXIT_FAILURE;
    }
    return idem_say_end(IDEM_EXIT_OK);
}

static int key_make(const struct idem_usage *usage, const struct key_options *options)
{
    char key[KEY_TEXT_SIZE];
    const char *form = options->uuid7 ? "uuid7" : "uuid4";
    int status = IDEM_EXIT_OK;

    if (sodium_init() < 0) {
        idem_say_error("the system gives no random bytes");
        return IDEM_EXIT_FAILURE;
    }
    if (options->template != NULL) {
        form = "semantic";
        status = semantic_make(usage, options, key);
    } else if (options->hash != NULL) {
        form = "content";
        status = content_make(options->hash, key);
    } else {
        uuid_make(options->uuid7, key);
    }
    return status != IDEM_EXIT_OK ? status : key_print(options, form, key);
}

int idem_command_key(int argc, char **argv)
{
    struct key_options key = {0};
    const struct idem_option options[] = {
        {"uuid4", IDEM_OPTION_FLAG, NULL, "a random UUID (the default)", &key.uuid4},
        {"uuid7", IDEM_OPTION_FLAG, NULL, "a UUID that starts with the time, so that keys sort",
         &key.uuid7},
        {"template", IDEM_OPTION_TEXT, "TEXT", "a key that names the operation: {name} is a value",
         &key.template},
        {"set", IDEM_OPTION_LIST, "NAME=VALUE", "a value for the template; may be repeated",
         &key.set},
        {"hash", IDEM_OPTION_TEXT, "FILE", "the SHA-256 of a file; - is standard input", &key.hash},
        {"json", IDEM_OPTION_FLAG, NULL, "print one JSON object", &key.json},
    };
    const struct idem_usage usage = {
        "key", "[OPTION]...", about, examples, options, sizeof options / sizeof options[0], 0};
    struct idem_operands operands;
    int outcome = idem_args_parse(&usage, argc, argv, &operands);

    if (outcome != IDEM_OK) {
        return idem_args_exit(outcome);
    }
    if (key.uuid4 + key.uuid7 + (key.template != NULL) + (key.hash != NULL) > 1) {
        return idem_args_wrong(&usage,
                               "--uuid4, --uuid7, --template and --hash exclude each other");
    }
    if (key.set.count > 0 && key.template == NULL) {
        return idem_args_wrong(&usage, "--set goes with --template");
    }
    return key_make(&usage, &key);
}
