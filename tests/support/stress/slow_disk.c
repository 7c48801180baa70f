/* A disk that is slow at random: calls on files below one directory take longer. For LD_PRELOAD.
 *
 * SLOW_DISK="SEED SHORT_SHARE SHORT_US LONG_SHARE LONG_US /directory": of 10,000 calls, SHORT_SHARE take up to SHORT_US
 * microseconds longer and LONG_SHARE between half of LONG_US and LONG_US. Without the variable nothing is delayed.
 * tests/support/hostile_machine.py compiles it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const unsigned SHARES = 10000;

static unsigned long long seed;
static unsigned short_share, short_us, long_share, long_us;
static char directory[PATH_MAX];
static size_t directory_length;

__attribute__((constructor)) static void read_settings(void) {
    const char *settings = getenv("SLOW_DISK");
    if (settings == NULL) {
        return;
    }
    char form[64];
    snprintf(form, sizeof form, "%%llu %%u %%u %%u %%u %%%ds", PATH_MAX - 1);
    if (sscanf(settings, form, &seed, &short_share, &short_us, &long_share, &long_us, directory) != 6) {
        fprintf(stderr, "slow_disk: SLOW_DISK is not understood: %s\n", settings);
        abort();
    }
    directory_length = strlen(directory);
}

/* The n-th thread of a process draws the same numbers for the same seed. */
static uint64_t draw(void) {
    static unsigned threads;
    static __thread uint64_t state;
    static __thread int is_seeded;
    if (!is_seeded) {
        is_seeded = 1;
        state = (seed + 1) * 0x9E3779B97F4A7C15u ^ __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) * 0xBF58476D1CE4E5B9u;
    }
    state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
}

static void sleep_us(unsigned us) {
    struct timespec pause = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&pause, NULL); /* a signal may end it */
}

static void delay(void) {
    unsigned share = (unsigned)(draw() % SHARES);
    if (share < long_share) {
        sleep_us(long_us / 2 + (unsigned)(draw() % (long_us / 2 + 1)));
    } else if (share < long_share + short_share) {
        sleep_us((unsigned)(draw() % (short_us + 1)));
    }
}

static int is_inside(const char *path) {
    return directory_length && strncmp(path, directory, directory_length) == 0;
}

static void delay_at(const char *link) {
    char path[PATH_MAX];
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        if (is_inside(path)) {
            delay();
        }
    }
}

/* What a process writes to its standard output and error are lines of its log. */
static void delay_of_file(int fd) {
    if (directory_length && fd > STDERR_FILENO) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        delay_at(link);
    }
}

static void delay_of_path(int base, const char *path) {
    if (!directory_length || path == NULL) {
        return;
    }
    if (path[0] == '/') {
        if (is_inside(path)) {
            delay();
        }
    } else if (base == AT_FDCWD) {
        delay_at("/proc/self/cwd");
    } else {
        delay_of_file(base);
    }
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) { \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    }

#define OF_FILE(result, name, parameters, ...) \
    result name parameters { \
        REAL(name) \
        delay_of_file(fd); \
        return real(__VA_ARGS__); \
    }

OF_FILE(ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
OF_FILE(ssize_t, writev, (int fd, const struct iovec *parts, int count), fd, parts, count)
OF_FILE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
OF_FILE(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
OF_FILE(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at), fd, parts, count, at)
OF_FILE(ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), fd, parts, count, at)
OF_FILE(ssize_t, pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int how), fd, parts, count, at, how)
OF_FILE(ssize_t, pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int how), fd, parts, count, at, how)
OF_FILE(ssize_t, pread, (int fd, void *data, size_t size, off_t at), fd, data, size, at)
OF_FILE(ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), fd, data, size, at)
OF_FILE(int, fsync, (int fd), fd)
OF_FILE(int, fdatasync, (int fd), fd)

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name) \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); /* without O_CREAT, nobody reads it */ \
        va_end(rest); \
        delay_of_path(AT_FDCWD, path); \
        return real(path, flags, mode); \
    }

OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int base, const char *path, int flags, ...) { \
        REAL(name) \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        delay_of_path(base, path); \
        return real(base, path, flags, mode); \
    }

OPENS_AT(openat)
OPENS_AT(openat64)

int rename(const char *from, const char *to) {
    REAL(rename)
    delay_of_path(AT_FDCWD, from);
    return real(from, to);
}

int renameat(int from_base, const char *from, int to_base, const char *to) {
    REAL(renameat)
    delay_of_path(from_base, from);
    return real(from_base, from, to_base, to);
}
