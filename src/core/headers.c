#include <idem/record.h>

#include "base/cursor.h"

size_t idem_headers_append(uint8_t *block, size_t size, size_t capacity, struct idem_bytes name,
                           struct idem_bytes value)
{
    struct idem_writer writer;

    if (name.size > UINT16_MAX || value.size > UINT32_MAX || size > capacity || block == NULL)
        return 0;
    idem_writer_init(&writer, block + size, capacity - size);
    idem_write_u16(&writer, (uint16_t)name.size);
    idem_write_u32(&writer, (uint32_t)value.size);
    idem_write_bytes(&writer, name);
    idem_write_bytes(&writer, value);
    return writer.failed ? 0 : capacity - writer.left;
}

bool idem_headers_next(struct idem_bytes *rest, struct idem_bytes *ret_name,
                       struct idem_bytes *ret_value)
{
    struct idem_reader reader;
    struct idem_bytes name, value;
    size_t name_size, value_size;

    if (rest->size == 0)
        return false;
    idem_reader_init(&reader, *rest);
    name_size = idem_read_u16(&reader);
    value_size = idem_read_u32(&reader);
    name = idem_read_bytes(&reader, name_size);
    value = idem_read_bytes(&reader, value_size);
    if (reader.failed)
        return false;
    *rest = idem_bytes_make(reader.next, reader.left);
    *ret_name = name;
    *ret_value = value;
    return true;
}
