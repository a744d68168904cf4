/*
 * LMDB needs a memory map and a lock that every opener shares, which file systems that are reached
 * over a network do not give: two hosts would each believe to hold the lock. A cluster file system
 * (GFS2, OCFS2) does share the map, but the lock lives in the memory of one host.
 *
 * FUSE is refused as a whole. Behind its one magic number are sshfs, s3fs and GlusterFS as well as
 * file systems on a local disk, and a store that guards money is not the place for a guess.
 */
#include "store/lmdb/filesystem.h"

#include <stddef.h>

static const struct idem_filesystem known[] = {
    {0x6969, "NFS", .refused = true},
    {0x517b, "SMB", .refused = true},
    {0xfe534d42, "SMB2", .refused = true},
    {0xff534d42, "CIFS", .refused = true},
    {0x564c, "NCP", .refused = true},
    {0x00c36400, "CephFS", .refused = true},
    {0x5346414f, "AFS", .refused = true},
    {0x6b414653, "AFS", .refused = true},
    {0x73757245, "Coda", .refused = true},
    {0x01021997, "9P", .refused = true},
    {0x65735546, "FUSE", .refused = true},
    {0x01161970, "GFS2", .refused = true},
    {0x7461636f, "OCFS2", .refused = true},
    {0x0bd00bd0, "Lustre", .refused = true},
    {0x47504653, "GPFS", .refused = true},
    {0x19830326, "BeeGFS", .refused = true},
    {0x20030528, "OrangeFS", .refused = true},
    {0xaad7aaea, "PanFS", .refused = true},
    {0x786f4256, "VirtualBox shared folder", .refused = true},
    {0xbacbacbc, "VMware shared folder", .refused = true},
    {0x9123683e, "Btrfs", .copies_on_write = true},
    {0x2fc12fc1, "ZFS", .copies_on_write = true},
    {0xca451a4e, "bcachefs", .copies_on_write = true},
    {0x3434, "NILFS", .copies_on_write = true},
    {0xef53, "ext4", .refused = false},
    {0x58465342, "XFS", .refused = false},
    {0xf2f52010, "F2FS", .refused = false},
    {0x01021994, "tmpfs", .refused = false},
    {0x794c7630, "overlay", .refused = false},
};

struct idem_filesystem idem_filesystem_find(unsigned long magic)
{
    struct idem_filesystem unknown = {.magic = magic, .name = "unknown"};

    /* Some kernels give the number sign-extended. */
    magic &= 0xffffffff;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].magic == magic)
            return known[i];
    return unknown;
}
