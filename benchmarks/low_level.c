/* What kfs' own front is measured against: the same files, served by C through libfuse's low-level interface.
 *
 *     low_level LINES FIRST_SECONDS INTERVAL_MILLISECONDS MOUNTPOINT
 *
 * Each line of the file LINES is the content of "<number>.json" in the root directory, with a modification time of
 * its own. Nothing is decoded or rendered: the lines are mapped into memory. All that libfuse can do about round
 * trips without leaving its defaults is done: attributes come with the listing (READDIRPLUS, as the kernel asks for
 * it), names and attributes are kept for a year, pages are kept over an open, and there is no flush.
 * One thread: with more it is slower.
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define YEAR (365 * 86400.0)
/* The node id of record 0; 1 is the root. */
#define FIRST_INO 2

static const char *lines;
static size_t *starts; /* records + 1 of them */
static size_t records;
static int64_t first_seconds, interval_ms;

static int attributes(fuse_ino_t ino, struct stat *stat)
{
    memset(stat, 0, sizeof *stat);
    stat->st_ino = ino;
    stat->st_uid = getuid();
    stat->st_gid = getgid();
    stat->st_blksize = 4096;
    if (ino == FUSE_ROOT_ID) {
        stat->st_mode = S_IFDIR | 0555;
        stat->st_nlink = 2;
        return 0;
    }
    if (ino < FIRST_INO || ino - FIRST_INO >= records)
        return -1;
    size_t at = ino - FIRST_INO;
    int64_t ms = first_seconds * 1000 + (int64_t)at * interval_ms;
    stat->st_mode = S_IFREG | 0444;
    stat->st_nlink = 1;
    stat->st_size = (off_t)(starts[at + 1] - starts[at]);
    stat->st_blocks = (stat->st_size + 511) / 512;
    stat->st_mtim.tv_sec = ms / 1000;
    stat->st_mtim.tv_nsec = ms % 1000 * 1000000;
    stat->st_atim = stat->st_ctim = stat->st_mtim;
    return 0;
}

static void fill_entry(fuse_ino_t ino, struct fuse_entry_param *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->ino = ino;
    entry->attr_timeout = entry->entry_timeout = YEAR;
    attributes(ino, &entry->attr);
}

static void low_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    char *end, canonical[32];
    unsigned long number = strtoul(name, &end, 10);
    snprintf(canonical, sizeof canonical, "%lu.json", number);
    if (parent != FUSE_ROOT_ID || number >= records || strcmp(name, canonical) != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    struct fuse_entry_param entry;
    fill_entry(number + FIRST_INO, &entry);
    fuse_reply_entry(req, &entry);
}

static void low_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    (void)info;
    struct stat stat;
    if (attributes(ino, &stat) != 0)
        fuse_reply_err(req, ENOENT);
    else
        fuse_reply_attr(req, &stat, YEAR);
}

static void low_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    (void)ino;
    info->keep_cache = 1;
    fuse_reply_open(req, info);
}

static void low_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info)
{
    (void)info;
    size_t at = ino - FIRST_INO;
    if (ino < FIRST_INO || at >= records) {
        fuse_reply_err(req, EISDIR);
        return;
    }
    size_t length = starts[at + 1] - starts[at];
    size_t from = (size_t)offset < length ? (size_t)offset : length;
    fuse_reply_buf(req, lines + starts[at] + from, size < length - from ? size : length - from);
}

/* Entry 0 is ".", 1 is "..", n + 2 is record n; an entry's offset is the number of the one behind it. */
static void list(fuse_req_t req, size_t size, off_t offset, int plus)
{
    char *buffer = malloc(size);
    size_t used = 0;
    if (buffer == NULL) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    for (size_t at = (size_t)offset; at < records + 2; at++) {
        char name[32];
        struct fuse_entry_param entry;
        fuse_ino_t ino = at < 2 ? FUSE_ROOT_ID : at - 2 + FIRST_INO;
        if (at < 2)
            strcpy(name, at == 0 ? "." : "..");
        else
            snprintf(name, sizeof name, "%zu.json", at - 2);
        fill_entry(ino, &entry);
        size_t length = plus
            ? fuse_add_direntry_plus(req, buffer + used, size - used, name, &entry, (off_t)at + 1)
            : fuse_add_direntry(req, buffer + used, size - used, name, &entry.attr, (off_t)at + 1);
        if (length > size - used)
            break;
        used += length;
    }
    fuse_reply_buf(req, buffer, used);
    free(buffer);
}

static void low_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info)
{
    (void)ino, (void)info;
    list(req, size, offset, 0);
}

static void low_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info)
{
    (void)ino, (void)info;
    list(req, size, offset, 1);
}

static const struct fuse_lowlevel_ops operations = {
    .lookup = low_lookup,
    .getattr = low_getattr,
    .open = low_open,
    .read = low_read,
    .readdir = low_readdir,
    .readdirplus = low_readdirplus,
};

static int map_lines(const char *path)
{
    struct stat stat;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &stat) != 0 || stat.st_size == 0)
        return -1;
    size_t size = (size_t)stat.st_size;
    lines = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    close(file);
    if (lines == MAP_FAILED)
        return -1;
    for (size_t at = 0; at < size; at++)
        records += lines[at] == '\n';
    starts = malloc((records + 1) * sizeof *starts);
    if (starts == NULL)
        return -1;
    starts[0] = 0;
    for (size_t at = 0, number = 0; at < size; at++)
        if (lines[at] == '\n')
            starts[++number] = at + 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 5 || map_lines(argv[1]) != 0) {
        fprintf(stderr, "usage: low_level LINES FIRST_SECONDS INTERVAL_MILLISECONDS MOUNTPOINT\n");
        return 2;
    }
    first_seconds = strtoll(argv[2], NULL, 10);
    interval_ms = strtoll(argv[3], NULL, 10);
    /* The subtype is kfs', so that what unmounts kfs unmounts this. */
    char *options[] = {argv[0], "-o", "ro,subtype=kfs,fsname=kfs:low_level", NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, options);
    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    if (session == NULL || fuse_set_signal_handlers(session) != 0 || fuse_session_mount(session, argv[4]) != 0)
        return 1;
    printf("%s: mounted\n", argv[4]);
    fflush(stdout);
    fuse_session_loop(session);
    fuse_session_unmount(session);
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
    return 0;
}
