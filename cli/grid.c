/* Grid: see grid.h. */
#include "grid.h"

#include <stdio.h>

#include "base/memory.h"
#include "printable.h"

void idem_grid_init(struct idem_grid *grid, const char *const *titles, size_t column_count)
{
    *grid = (struct idem_grid){.column_count = column_count};
    for (size_t i = 0; i < column_count; i++) {
        grid->titles[i] = titles[i];
        grid->widths[i] = idem_printable_columns(titles[i]);
    }
}

void idem_grid_deinit(struct idem_grid *grid)
{
    for (size_t i = 0; i < grid->cell_count; i++) {
        idem_free(grid->cells[i]);
    }
    idem_free(grid->cells);
    grid->cells = NULL;
    grid->cell_count = grid->cell_capacity = 0;
}

static int grid_grow(struct idem_grid *grid)
{
    size_t capacity = grid->cell_capacity == 0 ? 64 : 2 * grid->cell_capacity;
    char **cells;

    if (grid->cell_count < grid->cell_capacity) {
        return IDEM_OK;
    }
    cells = idem_realloc(grid->cells, capacity * sizeof *cells);
    if (cells == NULL) {
        return IDEM_ERR_NOMEM;
    }
    grid->cells = cells;
    grid->cell_capacity = capacity;
    return IDEM_OK;
}

int idem_grid_bytes(struct idem_grid *grid, struct idem_bytes cell, size_t columns_max)
{
    size_t column = grid->cell_count % grid->column_count;
    size_t width;
    char *text;
    int error = grid_grow(grid);

    if (error == IDEM_OK) {
        error = idem_printable_make(cell, columns_max, &text);
    }
    if (error != IDEM_OK) {
        return error;
    }
    grid->cells[grid->cell_count++] = text;
    width = idem_printable_columns(text);
    if (width > grid->widths[column]) {
        grid->widths[column] = width;
    }
    return IDEM_OK;
}

int idem_grid_text(struct idem_grid *grid, const char *cell)
{
    return idem_grid_bytes(grid, idem_bytes_from_text(cell), 0);
}

static void row_print(const struct idem_grid *grid, const char *const *cells)
{
    for (size_t i = 0; i < grid->column_count; i++) {
        size_t pad = grid->widths[i] - idem_printable_columns(cells[i]);

        /* No blanks after the last column: they break lines when a terminal is narrow. */
        printf("%s%*s", cells[i], i + 1 < grid->column_count ? (int)pad + 2 : 0, "");
    }
    putchar('\n');
}

void idem_grid_print(const struct idem_grid *grid)
{
    if (grid->cell_count == 0) {
        return;
    }
    row_print(grid, grid->titles);
    for (size_t i = 0; i + grid->column_count <= grid->cell_count; i += grid->column_count) {
        row_print(grid, (const char *const *)&grid->cells[i]);
    }
}
