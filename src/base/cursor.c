#include "base/cursor.h"

void idem_reader_init(struct idem_reader *reader, struct idem_bytes bytes)
{
    reader->next = bytes.data;
    reader->left = bytes.size;
    reader->failed = false;
}

int idem_reader_peek(const struct idem_reader *reader)
{
    return reader->left > 0 ? *reader->next : -1;
}

void idem_reader_fail(struct idem_reader *reader)
{
    reader->failed = true;
    reader->left = 0;
}

/* The next `size` bytes, taken, or NULL when there are not that many. */
static const uint8_t *reader_take(struct idem_reader *reader, size_t size)
{
    const uint8_t *taken = reader->next;

    if (reader->failed || size > reader->left) {
        idem_reader_fail(reader);
        return NULL;
    }
    /* An empty reader may hold NULL, and adding even 0 to NULL is undefined. */
    if (size > 0)
        reader->next += size;
    reader->left -= size;
    return taken;
}

static uint64_t reader_number(struct idem_reader *reader, size_t size)
{
    const uint8_t *taken = reader_take(reader, size);
    uint64_t value = 0;

    if (taken == NULL)
        return 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | taken[i];
    return value;
}

uint8_t idem_read_u8(struct idem_reader *reader)
{
    return (uint8_t)reader_number(reader, 1);
}

uint16_t idem_read_u16(struct idem_reader *reader)
{
    return (uint16_t)reader_number(reader, 2);
}

uint32_t idem_read_u32(struct idem_reader *reader)
{
    return (uint32_t)reader_number(reader, 4);
}

uint64_t idem_read_u64(struct idem_reader *reader)
{
    return reader_number(reader, 8);
}

struct idem_bytes idem_read_bytes(struct idem_reader *reader, size_t size)
{
    const uint8_t *taken = reader_take(reader, size);

    return idem_bytes_make(taken, taken == NULL ? 0 : size);
}

void idem_writer_init(struct idem_writer *writer, void *memory, size_t size)
{
    writer->next = memory;
    writer->left = size;
    writer->failed = false;
}

void idem_write_bytes(struct idem_writer *writer, struct idem_bytes bytes)
{
    if (writer->failed || bytes.size > writer->left) {
        writer->failed = true;
        writer->left = 0;
        return;
    }
    if (bytes.size == 0)
        return;
    memcpy(writer->next, bytes.data, bytes.size);
    writer->next += bytes.size;
    writer->left -= bytes.size;
}

static void writer_number(struct idem_writer *writer, uint64_t value, size_t size)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(value >> 8 * (size - 1 - i));
    idem_write_bytes(writer, idem_bytes_make(bytes, size));
}

void idem_write_u8(struct idem_writer *writer, uint8_t value)
{
    writer_number(writer, value, 1);
}

void idem_write_u16(struct idem_writer *writer, uint16_t value)
{
    writer_number(writer, value, 2);
}

void idem_write_u32(struct idem_writer *writer, uint32_t value)
{
    writer_number(writer, value, 4);
}

void idem_write_u64(struct idem_writer *writer, uint64_t value)
{
    writer_number(writer, value, 8);
}
