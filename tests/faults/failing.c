/* Preloaded: below a folder, the N-th call that changes a file kills the process or fails.

   mode 0 counts, 1 kills, 2 fails once with EIO, 3 fails with ENOSPC, and so do all later calls
   that need space. 4 does what was asked and reports EIO, and 5 writes half, as network disks do.
   6 interrupts. There are no hard links, as on exFAT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long wanted, mode;
static volatile long count;
static volatile int armed;

void faults_arm(const char *path, long number, long how) {
    strncpy(folder, path, sizeof folder - 1);
    wanted = number, mode = how, count = 0, armed = 1;
}
long faults_count(void) { return count; }
/* When the process was interrupted, by the monotonic clock in seconds; 0 if it was not. */
static volatile double interrupted;
double faults_interrupted(void) { return interrupted; }
void faults_interrupt(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    interrupted = now.tv_sec + now.tv_nsec / 1e9;
    kill(getpid(), SIGINT);
}

static int below(const char *path) {
    size_t size = strlen(folder);
    return !strncmp(path, folder, size) && (path[size] == '/' || !path[size]);
}
static int fd_below(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return below(path);
}
static int at_below(int fd, const char *path) {
    return path[0] == '/' || fd == AT_FDCWD ? below(path) : fd_below(fd);
}
static int is_refused(const char *call) {
    return !strncmp(call, "link", 4) ? errno = EPERM, 1 : 0;
}
enum fate { GOES, FAILS, LIES, HALVES };
static enum fate fate_of(int here, int needs_space) {
    if (!armed || !here) return GOES;
    long number = __sync_add_and_fetch(&count, 1);
    if (number >= wanted && wanted > 0 && mode == 3 && needs_space) return errno = ENOSPC, FAILS;
    if (number != wanted) return GOES;
    if (mode == 1) raise(SIGKILL);
    if (mode == 2) return errno = EIO, FAILS;
    if (mode == 4) return LIES;
    if (mode == 5) return HALVES;
    if (mode == 6) faults_interrupt();
    return GOES;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
#define MAKE(halve, name, type, signature, where, space, call, ...) \
    type name signature { \
        int error = errno; \
        REAL(type, #name, __VA_ARGS__); \
        int here = armed && where; \
        enum fate fate = fate_of(here, space); \
        if (fate == FAILS) return -1; \
        if (here && is_refused(#name)) return -1; \
        halve; \
        errno = error; \
        type result = real call; \
        if (fate == LIES && result >= 0) return errno = EIO, -1; \
        return result; \
    }
#define KEEP(...) MAKE(, __VA_ARGS__)
/* Of calls that may write fewer bytes than they are asked to. */
#define WRITE(...) MAKE(if (fate == HALVES && size > 1) size /= 2, __VA_ARGS__)

WRITE(write, ssize_t, (int fd, const void *data, size_t size), fd_below(fd), 1, (fd, data, size), int, const void *, size_t)
WRITE(pwrite, ssize_t, (int fd, const void *data, size_t size, off_t at), fd_below(fd), 1, (fd, data, size, at), int, const void *, size_t, off_t)
WRITE(pwrite64, ssize_t, (int fd, const void *data, size_t size, off64_t at), fd_below(fd), 1, (fd, data, size, at), int, const void *, size_t, off64_t)
KEEP(writev, ssize_t, (int fd, const struct iovec *parts, int size), fd_below(fd), 1, (fd, parts, size), int, const struct iovec *, int)
WRITE(sendfile, ssize_t, (int out, int in, off_t *at, size_t size), fd_below(out), 1, (out, in, at, size), int, int, off_t *, size_t)
WRITE(sendfile64, ssize_t, (int out, int in, off64_t *at, size_t size), fd_below(out), 1, (out, in, at, size), int, int, off64_t *, size_t)
WRITE(copy_file_range, ssize_t, (int in, off64_t *a, int out, off64_t *b, size_t size, unsigned flags), fd_below(out), 1, (in, a, out, b, size, flags), int, off64_t *, int, off64_t *, size_t, unsigned)
KEEP(ftruncate, int, (int fd, off_t size), fd_below(fd), 1, (fd, size), int, off_t)
KEEP(ftruncate64, int, (int fd, off64_t size), fd_below(fd), 1, (fd, size), int, off64_t)
KEEP(fsync, int, (int fd), fd_below(fd), 0, (fd), int)
KEEP(fdatasync, int, (int fd), fd_below(fd), 0, (fd), int)
KEEP(rename, int, (const char *a, const char *b), below(b), 0, (a, b), const char *, const char *)
KEEP(renameat, int, (int x, const char *a, int y, const char *b), at_below(y, b), 0, (x, a, y, b), int, const char *, int, const char *)
KEEP(renameat2, int, (int x, const char *a, int y, const char *b, unsigned flags), at_below(y, b), 0, (x, a, y, b, flags), int, const char *, int, const char *, unsigned)
KEEP(link, int, (const char *a, const char *b), below(b), 1, (a, b), const char *, const char *)
KEEP(linkat, int, (int x, const char *a, int y, const char *b, int flags), at_below(y, b), 1, (x, a, y, b, flags), int, const char *, int, const char *, int)
KEEP(mkdir, int, (const char *path, mode_t bits), below(path), 1, (path, bits), const char *, mode_t)
KEEP(mkdirat, int, (int fd, const char *path, mode_t bits), at_below(fd, path), 1, (fd, path, bits), int, const char *, mode_t)
KEEP(unlink, int, (const char *path), below(path), 0, (path), const char *)
KEEP(unlinkat, int, (int fd, const char *path, int flags), at_below(fd, path), 0, (fd, path, flags), int, const char *, int)
KEEP(rmdir, int, (const char *path), below(path), 0, (path), const char *)
KEEP(chmod, int, (const char *path, mode_t bits), below(path), 0, (path, bits), const char *, mode_t)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t bits = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        REAL(int, #name, const char *, int, ...); \
        enum fate fate = flags & O_CREAT ? fate_of(below(path), 1) : GOES; \
        if (fate == FAILS) return -1; \
        int file = real(path, flags, bits); \
        if (fate == LIES && file >= 0) return close(file), errno = EIO, -1; \
        return file; \
    }
OPEN(open)
OPEN(open64)
