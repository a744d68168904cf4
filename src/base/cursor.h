/*
 * Cursor: bytes from outside pass through here and nowhere else. Reading past the end sets `failed`
 * and yields zeroes from then on, so that a decoder checks once, at its end. Big-endian.
 */
#ifndef IDEM_BASE_CURSOR_H
#define IDEM_BASE_CURSOR_H

#include <idem/bytes.h>

struct idem_reader {
    const uint8_t *next;
    size_t left;
    bool failed;
};

void idem_reader_init(struct idem_reader *reader, struct idem_bytes bytes);

/* The next byte without taking it, or -1 at the end or after a failure. */
int idem_reader_peek(const struct idem_reader *reader);

/* For a parser that finds what its grammar does not allow: nothing can be read any more. */
void idem_reader_fail(struct idem_reader *reader);

uint8_t idem_read_u8(struct idem_reader *reader);
uint16_t idem_read_u16(struct idem_reader *reader);
uint32_t idem_read_u32(struct idem_reader *reader);
uint64_t idem_read_u64(struct idem_reader *reader);
struct idem_bytes idem_read_bytes(struct idem_reader *reader, size_t size);

/* Writing into memory of known size; past the end sets `failed` and writes nothing. */
struct idem_writer {
    uint8_t *next;
    size_t left;
    bool failed;
};

void idem_writer_init(struct idem_writer *writer, void *memory, size_t size);
void idem_write_u8(struct idem_writer *writer, uint8_t value);
void idem_write_u16(struct idem_writer *writer, uint16_t value);
void idem_write_u32(struct idem_writer *writer, uint32_t value);
void idem_write_u64(struct idem_writer *writer, uint64_t value);
void idem_write_bytes(struct idem_writer *writer, struct idem_bytes bytes);

#endif
