/*
 * Format: what LMDB's files look like, as far as idem looks at them itself. It is that of all
 * versions 0.9 and depends on the machine, as the files do: its byte order and the size of a word.
 */
#ifndef IDEM_STORE_LMDB_FORMAT_H
#define IDEM_STORE_LMDB_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define IDEM_LMDB_MARK   0xBEEFC0DEu
#define IDEM_LMDB_FORMAT 1

enum idem_lmdb_page_flags {
    IDEM_LMDB_PAGE_BRANCH = 1,
    IDEM_LMDB_PAGE_LEAF = 2,
    IDEM_LMDB_PAGE_OVERFLOW = 4, /* the first of the pages of one large value */
    IDEM_LMDB_PAGE_META = 8,
    IDEM_LMDB_PAGE_KINDS = 0x6f, /* these, and two kinds that idem does not use */
};

/* How each page begins. Offsets of its nodes follow, as 16-bit numbers, up to `lower`. */
struct idem_lmdb_page {
    size_t number; /* its own place in the file, in pages */
    uint16_t pad, flags;
    uint16_t lower, upper; /* the room between the offsets and the nodes */
};

/* Of an overflow page, where others have lower and upper. */
static inline uint32_t idem_lmdb_page_count(const struct idem_lmdb_page *page)
{
    union {
        uint16_t halves[2];
        uint32_t whole;
    } count = {{page->lower, page->upper}};

    return count.whole;
}

enum idem_lmdb_node_flags {
    IDEM_LMDB_NODE_BIG = 1,  /* its value is the number of an overflow page */
    IDEM_LMDB_NODE_TREE = 2, /* its value is a struct idem_lmdb_tree: a named database */
};

/* In a leaf `low` is the size of the value; in a branch it is the child, `flags` its upper bits. */
struct idem_lmdb_node {
    uint32_t low;
    uint16_t flags;
    uint16_t key_size; /* the key follows, then the value */
};

struct idem_lmdb_tree {
    uint32_t page_size; /* of the file, in the free list's tree only */
    uint16_t flags, depth;
    size_t branches, leaves, overflows, entries;
    size_t root;
};

/* Behind the head of each of the pages 0 and 1. */
struct idem_lmdb_meta {
    uint32_t mark, format;
    void *address;
    size_t map_size;
    struct idem_lmdb_tree trees[2]; /* the free list; the one that holds the named databases */
    size_t last;                    /* page that was ever used */
    size_t transaction;
};

#endif
