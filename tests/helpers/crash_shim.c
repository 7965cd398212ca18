/* Preloaded into a process under test: counts the system calls that change a study folder and
 * kills the process with SIGKILL at the N-th, before it happens; a write may be torn in half.
 * crash_arm(0) only counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char prefix[4096];
static long target, count, tear, fail_errno;

void crash_arm(const char *folder, long at, long torn, long error) {
    strncpy(prefix, folder, sizeof prefix - 1);
    count = 0; target = at; tear = torn; fail_errno = error;
}
long crash_count(void) { return count; }

static int inside(const char *path) { return prefix[0] && strncmp(path, prefix, strlen(prefix)) == 0; }
static int inside_fd(int fd) {
    char link[64], path[4096];
    if (!prefix[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return inside(path);
}
/* 1: this is the call; the caller tears or fails. */
static int hit(void) {
    if (__sync_add_and_fetch(&count, 1) != target) return 0; /* threads sync files together */
    if (!fail_errno && !tear) kill(getpid(), SIGKILL);
    return 1;
}
#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (inside_fd(fd) && hit()) {
        if (fail_errno) { errno = fail_errno; return -1; }
        real(fd, data, size / 2); kill(getpid(), SIGKILL);
    }
    return real(fd, data, size);
}
#define PWRITE(name, offset_t) \
ssize_t name(int fd, const void *data, size_t size, offset_t at) { \
    REAL(ssize_t, #name, int, const void *, size_t, offset_t); \
    if (inside_fd(fd) && hit()) { \
        if (fail_errno) { errno = fail_errno; return -1; } \
        real(fd, data, size / 2, at); kill(getpid(), SIGKILL); \
    } \
    return real(fd, data, size, at); \
}
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
#define ON_FD(name) \
int name(int fd) { \
    REAL(int, #name, int); \
    if (inside_fd(fd) && hit()) { \
        if (fail_errno) { errno = fail_errno; return -1; } \
        kill(getpid(), SIGKILL); \
    } \
    return real(fd); \
}
ON_FD(fsync)
ON_FD(fdatasync)
#define TRUNCATE(name, offset_t) \
int name(int fd, offset_t size) { \
    REAL(int, #name, int, offset_t); \
    if (inside_fd(fd) && hit()) { \
        if (fail_errno) { errno = fail_errno; return -1; } \
        kill(getpid(), SIGKILL); \
    } \
    return real(fd, size); \
}
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    if (inside(path) && hit()) {
        if (fail_errno) { errno = fail_errno; return -1; }
        kill(getpid(), SIGKILL);
    }
    return real(path);
}
int unlinkat(int fd, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    if (inside_fd(fd) && hit()) {
        if (fail_errno) { errno = fail_errno; return -1; }
        kill(getpid(), SIGKILL);
    }
    return real(fd, path, flags);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    if (inside(path) && hit()) {
        if (fail_errno) { errno = fail_errno; return -1; }
        kill(getpid(), SIGKILL);
    }
    return real(path, mode);
}
