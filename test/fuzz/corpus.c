/*
 * Runs a fuzz target over every file of the directories named, so that what the fuzzers have found
 * stays tested by any compiler. A property that does not hold aborts and names the file.
 */
#include <dirent.h>
#include <string.h>

#include "fuzz.h"

#define FILE_SIZE_MAX (1u << 20)
#define PATH_SIZE_MAX 4096

/* Reads the file into memory of exactly its size, so that a sanitizer sees an over-read. */
static uint8_t *file_read(const char *path, size_t *ret_size)
{
    static uint8_t buffer[FILE_SIZE_MAX];
    FILE *file = fopen(path, "rb");
    uint8_t *data;
    size_t size;

    if (file == NULL)
        return NULL;
    size = fread(buffer, 1, sizeof buffer, file);
    if (ferror(file) || !feof(file)) {
        fclose(file);
        return NULL;
    }
    fclose(file);
    data = malloc(size > 0 ? size : 1);
    if (data == NULL)
        return NULL;
    memcpy(data, buffer, size);
    *ret_size = size;
    return data;
}

static int file_run(const char *path)
{
    size_t size = 0;
    uint8_t *data = file_read(path, &size);

    if (data == NULL) {
        printf("not ok %s: cannot be read whole\n", path);
        return -1;
    }
    /* Before the run, because a failure aborts. */
    printf("run %s\n", path);
    fflush(stdout);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

static void directory_run(const char *name, unsigned *passed, unsigned *failed)
{
    DIR *directory = opendir(name);
    struct dirent *entry;

    if (directory == NULL) {
        printf("not ok %s: no such directory\n", name);
        (*failed)++;
        return;
    }
    while ((entry = readdir(directory)) != NULL) {
        char path[PATH_SIZE_MAX];
        int size = snprintf(path, sizeof path, "%s/%s", name, entry->d_name);

        if (entry->d_name[0] == '.')
            continue;
        if (size < 0 || (size_t)size >= sizeof path || file_run(path) != 0)
            (*failed)++;
        else
            (*passed)++;
    }
    closedir(directory);
}

int main(int count, char **arguments)
{
    unsigned passed = 0, failed = 0;

    for (int i = 1; i < count; i++)
        directory_run(arguments[i], &passed, &failed);
    printf("%u passed, %u failed\n", passed, failed);
    /* An empty corpus proves nothing. */
    return failed == 0 && passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
