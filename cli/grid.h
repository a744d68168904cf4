/*
 * Grid: rows for people, in columns as wide as their widest cell. JSON is for programs.
 */
#ifndef IDEM_CLI_GRID_H
#define IDEM_CLI_GRID_H

#include <idem/bytes.h>
#include <idem/error.h>

#define IDEM_GRID_COLUMNS_MAX 12

struct idem_grid {
    size_t column_count;
    const char *titles[IDEM_GRID_COLUMNS_MAX];
    size_t widths[IDEM_GRID_COLUMNS_MAX];
    char **cells; /* row by row, owned */
    size_t cell_count, cell_capacity;
};

/* Titles are borrowed for the life of the table. Release with idem_grid_deinit, also unused. */
void idem_grid_init(struct idem_grid *grid, const char *const *titles, size_t column_count);
void idem_grid_deinit(struct idem_grid *grid);

/* Adds the next cell of the row, made printable and cut at `columns_max` (0: whole). */
IDEM_MUST_CHECK int idem_grid_bytes(struct idem_grid *grid, struct idem_bytes cell,
                                    size_t columns_max);
IDEM_MUST_CHECK int idem_grid_text(struct idem_grid *grid, const char *cell);

/* Prints the titles and all rows; nothing when there is no row. */
void idem_grid_print(const struct idem_grid *grid);

#endif
