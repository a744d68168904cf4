/*
 * The checksum of an encoded record, for the tests that forge one: a fuzzer that cannot get past
 * the checksum tests nothing behind it.
 */
#ifndef IDEM_CORE_RECORD_CODEC_H
#define IDEM_CORE_RECORD_CODEC_H

#include <idem/bytes.h>

#define IDEM_RECORD_CHECKSUM_SIZE 8

/* Over everything before the checksum itself, which ends the blob, big-endian. */
uint64_t idem_record_checksum(struct idem_bytes covered);

#endif
