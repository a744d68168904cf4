/*
 * LMDB follows page numbers and offsets without a look at them: pages that somebody wrote over end
 * the process with a signal, and every process that opens the store after it. So before LMDB walks
 * into the file, the pages nearest to the roots are looked at, level by level:
 *
 *   1. a snapshot is held, so that none of its pages is used again while they are looked at
 *   2. its roots stand in the meta page that carries its number
 *   3. each page must carry its own number and be of the kind that its level asks for, its nodes
 *      must lie within it, and what they name within the file
 *   4. the children follow, up to PAGES_MAX pages: a small store is looked at whole, of a large one
 *      what every search passes through
 *
 * The file is read, not the map, so that nothing that is found can do harm. What lies deeper is
 * checked by the checksum of each record.
 */
#include <errno.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/lmdb/format.h"
#include "store/lmdb/lmdb_store.h"

#define PAGES_MAX     1024
#define PAGE_SIZE_MAX 65536
#define LEVEL_BIG     0  /* an overflow page; leaves are level 1 */
#define LEVEL_MAX     32 /* as LMDB's own */
#define NO_ROOT       SIZE_MAX
#define SNAPSHOTS_MAX 8 /* tries to read the meta page before writers have replaced it */

struct visit {
    size_t number;
    unsigned level;
    bool names; /* the tree's values are the named databases */
};

struct walk {
    mdb_filehandle_t fd;
    size_t page_size;
    size_t last; /* page of the file */
    size_t count, next;
    struct visit visits[PAGES_MAX];
    uint8_t page[PAGE_SIZE_MAX];
};

/* 0, MDB_CORRUPTED when the file ends before, or an errno. */
static int bytes_read(mdb_filehandle_t fd, uint64_t offset, void *ret_bytes, size_t size)
{
    ssize_t got;

    do
        got = pread(fd, ret_bytes, size, (off_t)offset);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno;
    return (size_t)got == size ? 0 : MDB_CORRUPTED;
}

/* Past the maximum nothing more is looked at. */
static int visit_add(struct walk *walk, size_t number, unsigned level, bool names)
{
    if (number < 2 || number > walk->last)
        return MDB_CORRUPTED;
    if (walk->count < PAGES_MAX)
        walk->visits[walk->count++] = (struct visit){number, level, names};
    return 0;
}

static int tree_add(struct walk *walk, const struct idem_lmdb_tree *tree, bool names)
{
    if (tree->root == NO_ROOT)
        return tree->depth == 0 ? 0 : MDB_CORRUPTED;
    if (tree->depth == 0 || tree->depth > LEVEL_MAX)
        return MDB_CORRUPTED;
    return visit_add(walk, tree->root, tree->depth, names);
}

/* A node of a leaf, which has `room` bytes up to the page's end. */
static int leaf_node_check(struct walk *walk, const struct idem_lmdb_node *node,
                           const uint8_t *bytes, size_t room, bool names)
{
    size_t size = node->flags & IDEM_LMDB_NODE_BIG ? sizeof(size_t) : node->low;
    const uint8_t *value = bytes + sizeof *node + node->key_size;
    struct idem_lmdb_tree tree;
    size_t number;

    if (sizeof *node + node->key_size > room || size > room - sizeof *node - node->key_size)
        return MDB_CORRUPTED;
    if (node->flags & IDEM_LMDB_NODE_BIG) {
        memcpy(&number, value, sizeof number);
        return visit_add(walk, number, LEVEL_BIG, false);
    }
    if (!names)
        return node->flags == 0 ? 0 : MDB_CORRUPTED;
    if (node->flags != IDEM_LMDB_NODE_TREE || size != sizeof tree)
        return MDB_CORRUPTED;
    memcpy(&tree, value, sizeof tree);
    return tree_add(walk, &tree, false);
}

static int branch_node_check(struct walk *walk, const struct idem_lmdb_node *node, size_t room,
                             const struct visit *visit)
{
    uint64_t child = (uint64_t)node->flags << 32 | node->low;

    if (sizeof *node + node->key_size > room)
        return MDB_CORRUPTED;
    return visit_add(walk, (size_t)child, visit->level - 1, visit->names);
}

static int nodes_check(struct walk *walk, const struct visit *visit, size_t count, size_t upper)
{
    struct idem_lmdb_node node;
    int code = 0;

    for (size_t i = 0; i < count && !code; i++) {
        uint16_t offset;

        memcpy(&offset, walk->page + sizeof(struct idem_lmdb_page) + i * sizeof offset,
               sizeof offset);
        if (offset < upper || offset + sizeof node > walk->page_size)
            return MDB_CORRUPTED;
        memcpy(&node, walk->page + offset, sizeof node);
        if (visit->level == 1)
            code = leaf_node_check(walk, &node, walk->page + offset, walk->page_size - offset,
                                   visit->names);
        else
            code = branch_node_check(walk, &node, walk->page_size - offset, visit);
    }
    return code;
}

static int big_check(const struct walk *walk, const struct idem_lmdb_page *head)
{
    uint32_t count = idem_lmdb_page_count(head);
    bool good = (head->flags & IDEM_LMDB_PAGE_KINDS) == IDEM_LMDB_PAGE_OVERFLOW && count > 0 &&
                count <= walk->last - head->number + 1;

    return good ? 0 : MDB_CORRUPTED;
}

static int page_check(struct walk *walk, const struct visit *visit)
{
    const unsigned kind = visit->level == 1 ? IDEM_LMDB_PAGE_LEAF : IDEM_LMDB_PAGE_BRANCH;
    struct idem_lmdb_page head;
    int code = bytes_read(walk->fd, (uint64_t)visit->number * walk->page_size, walk->page,
                          walk->page_size);

    if (code)
        return code;
    memcpy(&head, walk->page, sizeof head);
    if (head.number != visit->number)
        return MDB_CORRUPTED;
    if (visit->level == LEVEL_BIG)
        return big_check(walk, &head);
    if ((head.flags & IDEM_LMDB_PAGE_KINDS) != kind || head.lower < sizeof head ||
        (head.lower - sizeof head) % 2 || head.lower > head.upper || head.upper > walk->page_size)
        return MDB_CORRUPTED;
    return nodes_check(walk, visit, (head.lower - sizeof head) / 2, head.upper);
}

/*
 * The meta page of the snapshot that `txn` holds, read from the file. Its place follows from the
 * snapshot's number; two commits later another one is in it, and then nothing can be said.
 */
static int meta_find(struct idem_backend *store, MDB_txn *txn, size_t page_size,
                     struct idem_lmdb_meta *ret_meta, bool *ret_same)
{
    size_t number = mdb_txn_id(txn);
    mdb_filehandle_t fd;
    int code = mdb_env_get_fd(store->env, &fd);

    if (!code)
        code = bytes_read(fd, (number & 1) * page_size + sizeof(struct idem_lmdb_page), ret_meta,
                          sizeof *ret_meta);
    *ret_same = !code && ret_meta->transaction == number;
    return code;
}

static int walk_run(struct walk *walk, const struct idem_lmdb_meta *meta)
{
    int code;

    walk->last = meta->last;
    code = tree_add(walk, &meta->trees[0], false);
    if (!code)
        code = tree_add(walk, &meta->trees[1], true);
    while (!code && walk->next < walk->count)
        code = page_check(walk, &walk->visits[walk->next++]);
    return code;
}

static int snapshot_check(struct idem_backend *store, struct walk *walk, bool *ret_done)
{
    struct idem_lmdb_meta meta;
    bool same = false;
    int code = idem_lmdb_txn_begin(store, true, &store->read_txn);

    if (code)
        return code;
    code = meta_find(store, store->read_txn, walk->page_size, &meta, &same);
    *ret_done = code || same;
    /* A later format of LMDB's looks different, and its library may be more careful. */
    if (same && meta.mark == IDEM_LMDB_MARK && meta.format == IDEM_LMDB_FORMAT)
        code = walk_run(walk, &meta);
    mdb_txn_reset(store->read_txn);
    return code;
}

int idem_lmdb_pages_check(struct idem_backend *store)
{
    struct walk *walk;
    bool done = false;
    int code = 0;

    if (store->space.page_size > PAGE_SIZE_MAX)
        return 0;
    walk = idem_malloc(sizeof *walk);
    if (!walk)
        return ENOMEM;
    walk->page_size = store->space.page_size;
    walk->count = walk->next = 0;
    code = mdb_env_get_fd(store->env, &walk->fd);
    for (unsigned i = 0; i < SNAPSHOTS_MAX && !code && !done; i++)
        code = snapshot_check(store, walk, &done);
    idem_free(walk);
    return code;
}
