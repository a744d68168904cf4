/*
 * Place: where idem keeps its things, and how a command opens a store that is already there.
 */
#ifndef IDEM_CLI_PLACE_H
#define IDEM_CLI_PLACE_H

#include <limits.h>

#include <idem/store.h>

/*
 * The default state directory: /var/lib/idem for root, else $XDG_STATE_HOME/idem (XDG Base
 * Directory Specification: an absolute path, or it counts as unset), else ~/.local/state/idem.
 */
IDEM_MUST_CHECK int idem_place_state(char ret_path[PATH_MAX], struct idem_message *message);

/* "lmdb:DIRECTORY/store", with what has a meaning in a URL escaped. */
IDEM_MUST_CHECK int idem_place_store_url(const char *state, char ret_url[IDEM_URL_SIZE_MAX],
                                         struct idem_message *message);

/* Writes a path as it goes into a store URL, percent-escaped; false when it does not fit. */
bool idem_place_escape(const char *path, char *ret_text, size_t size);

/*
 * What --store names, else $IDEM_STORE, else the store in the default state directory. Either may
 * be "@FILE": the URL is the file's first line, without the blanks around it, so that a password
 * stands in no list of processes.
 * The URL may hold a password: show idem_store_url_redact() of it and nothing else.
 */
IDEM_MUST_CHECK int idem_place_store(const char *option, char ret_url[IDEM_URL_SIZE_MAX],
                                     struct idem_message *message);

/*
 * How a hint names a store that was named so: the file that holds its URL, or its URL as people may
 * see it, written to `text`. NULL when --store was not given: who types the hint finds it as well.
 */
const char *idem_place_hint(const char *option, const char *url, char text[IDEM_URL_SIZE_MAX]);

/* Outcome of idem_place_open besides IDEM_OK: the URL names no store that there could be. */
#define IDEM_PLACE_WRONG 1

/*
 * Opens the store that --store (NULL when it was not given), IDEM_STORE or the state directory
 * names, and yields its URL as people may see it, without a password. Never makes an embedded one,
 * unless `create`. Root becomes the owner of an embedded store while it opens it, so that no file
 * in it ends up belonging to root. Until idem_place_close, a crash says that the store is damaged;
 * see crash.h.
 *
 * IDEM_PLACE_WRONG or IDEM_ERR_* with a sentence that says what to do; the URL is yielded then too,
 * empty when there is none.
 */
IDEM_MUST_CHECK int idem_place_open(const char *option, bool create,
                                    char ret_shown[IDEM_URL_SIZE_MAX],
                                    struct idem_store **ret_store, struct idem_message *message);

/* NULL is fine. */
void idem_place_close(struct idem_store *store);

/* The exit status for an outcome of idem_place_open that is not IDEM_OK. */
int idem_place_exit(int outcome);

/* The name of a user for a sentence: "www-data", or "uid 123" for one without a name. */
#define IDEM_USER_TEXT_SIZE 64
const char *idem_place_user(unsigned uid, char ret_text[IDEM_USER_TEXT_SIZE]);

#endif
