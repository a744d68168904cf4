/*
 * The slot of a key in a cluster: CRC16 (XMODEM: polynomial 0x1021, from 0) of the key, or of what
 * stands between its first '{' and the '}' after it if that is not empty, modulo the slots.
 */
#include "store/redis/redis_store.h"

static unsigned crc16(const char *text, size_t size)
{
    unsigned crc = 0;

    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned)(unsigned char)text[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
        crc &= 0xffff;
    }
    return crc;
}

unsigned idem_redis_slot(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open ? strchr(open + 1, '}') : NULL;

    if (close && close > open + 1)
        return crc16(open + 1, (size_t)(close - open - 1)) % IDEM_REDIS_SLOTS;
    return crc16(key, strlen(key)) % IDEM_REDIS_SLOTS;
}
