/*
 * Schema: the SQL that migration runs, as arrays of lines that NULL ends. Made from sql/ by
 * sql/embed; the SQL there is the place to read and to change.
 */
#ifndef IDEM_STORE_POSTGRES_SCHEMA_H
#define IDEM_STORE_POSTGRES_SCHEMA_H

#include <stddef.h>

extern const char *const idem_pg_sql_tables[];
extern const char *const idem_pg_sql_tables_drop[];
extern const char *const idem_pg_sql_parts[];
extern const char *const idem_pg_sql_common[];
extern const char *const idem_pg_sql_claim[];
extern const char *const idem_pg_sql_verdict[];
extern const char *const idem_pg_sql_people[];
extern const char *const idem_pg_sql_keep[];
extern const char *const idem_pg_sql_rules_end[];
extern const char *const idem_pg_sql_rules_drop[];

#endif
