/* Migrate: `idem migrate`, the tables of a store that is kept in an SQL database. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "args.h"
#include "json.h"
#include "place.h"
#include "printable.h"

static const char about[] =
    "Brings the tables of a store in PostgreSQL or MariaDB to the version that this idem needs, or "
    "to another one, forward or back. Run it as a user who may make tables, before the gateways "
    "start; running it again changes nothing. Version 0 is a database without the tables: that "
    "removes every record, and every request from before may execute again.";

static const char examples[] =
    "  idem migrate @/etc/idem/store-url-of-the-owner\n"
    "  idem migrate postgresql://owner@10.0.0.6/payments --json\n"
    "  idem migrate postgresql://owner@10.0.0.6/payments --to 0 --remove-records\n";

struct migrate {
    const char *store;
    int64_t to; /* negative: the latest */
    bool remove, json;
};

static int migration_json(const char *shown, const struct idem_migration *migration)
{
    json_t *object = json_object();
    int bad = object == NULL;

    if (bad == 0) {
        bad |= idem_json_set_text(object, "store", shown);
        bad |= idem_json_set_number(object, "from", migration->from);
        bad |= idem_json_set_number(object, "to", migration->to);
        bad |= idem_json_set_flag(object, "changed", migration->from != migration->to);
        bad |= idem_json_set_flag(object, "mended", migration->mended);
        bad |= bad == 0 ? idem_json_print(object, false) : 0;
    }
    json_decref(object);
    return bad != 0 ? IDEM_ERR_NOMEM : IDEM_OK;
}

static void migration_print(const struct migrate *migrate, const char *shown,
                            const struct idem_migration *migration)
{
    idem_printable_write(stdout, shown);
    if (migration->from != migration->to) {
        printf(": from version %d to version %d\n", migration->from, migration->to);
    } else if (migration->to > 0) {
        printf(": is at version %d already%s\n", migration->to,
               migration->mended ? "; what of it was dropped or changed was made anew" : "");
    } else if (migrate->to == 0) {
        puts(": has no tables; nothing was removed");
    } else {
        puts(": has no tables to migrate, a store of this kind needs none");
    }
}

static int migrate_run(const struct migrate *migrate)
{
    char url[IDEM_URL_SIZE_MAX], shown[IDEM_URL_SIZE_MAX];
    struct idem_message message = {{0}};
    struct idem_migration migration = {.from = 0};
    int version = migrate->to < 0 ? IDEM_SCHEMA_LATEST : (int)migrate->to;
    int error = idem_place_store(migrate->store, url, &message);

    if (error == IDEM_OK) {
        error = idem_store_url_check(url, NULL, &message);
    }
    if (error != IDEM_OK) {
        idem_say_error("%s", message.text);
        return error == IDEM_ERR_NOMEM ? IDEM_EXIT_FAILURE : IDEM_EXIT_USAGE;
    }
    idem_store_url_redact(url, shown, sizeof shown);
    error = idem_store_migrate(url, version, &migration, &message);
    if (error != IDEM_OK) {
        idem_say_error("%s", message.text[0] != '\0' ? message.text : idem_error_text(error));
        /* The URL was judged above; what is left of the command line is the version. */
        return error == IDEM_ERR_INVALID && migrate->to > 0 ? IDEM_EXIT_USAGE
                                                            : idem_place_exit(error);
    }
    if (!migrate->json) {
        migration_print(migrate, shown, &migration);
    } else if (migration_json(shown, &migration) != IDEM_OK) {
        idem_say_error("%s", idem_error_text(IDEM_ERR_NOMEM));
        return IDEM_EXIT_FAILURE;
    }
    return idem_say_end(IDEM_EXIT_OK);
}

int idem_command_migrate(int argc, char **argv)
{
    struct migrate migrate = {.to = -1};
    const struct idem_option options[] = {
        {"store", IDEM_OPTION_TEXT, "URL",
         "the store (default: $IDEM_STORE); a user who may make tables is needed", &migrate.store},
        {"to", IDEM_OPTION_COUNT, "VERSION", "another version than the latest", &migrate.to},
        {"remove-records", IDEM_OPTION_FLAG, NULL, "what --to 0 does must be said in words",
         &migrate.remove},
        {"json", IDEM_OPTION_FLAG, NULL, "print one JSON object", &migrate.json},
    };
    const struct idem_usage usage = {"migrate", "[URL] [OPTION]...",
                                     about,     examples,
                                     options,   sizeof options / sizeof options[0],
                                     1};
    const char *named = getenv("IDEM_STORE");
    struct idem_operands operands;
    int outcome = idem_args_parse(&usage, argc, argv, &operands);

    if (outcome != IDEM_OK) {
        return idem_args_exit(outcome);
    }
    if (operands.count > 0 && migrate.store != NULL) {
        return idem_args_wrong(&usage, "name the store once: as URL or by --store URL");
    }
    if (migrate.to > INT_MAX) {
        return idem_args_wrong(&usage, "--to takes the number of a version");
    }
    if ((migrate.to == 0) != migrate.remove) {
        return idem_args_wrong(&usage,
                               "--to 0 removes the tables and every record in them, and a retry of "
                               "an old request then executes again; it goes with --remove-records, "
                               "and --remove-records with it");
    }
    if (operands.count > 0) {
        migrate.store = operands.items[0];
    }
    if (migrate.store == NULL && (named == NULL || named[0] == '\0')) {
        return idem_args_wrong(&usage, "name the store: as URL, or in IDEM_STORE");
    }
    return migrate_run(&migrate);
}
