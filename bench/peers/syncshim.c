/* LD_PRELOAD for servers that answer a PUT before it is safe: a rename first flushes
 * the file, then the directory it lands in; an unlink flushes the directory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int flush(const char *path, int flags) {
    int file = open(path, flags | O_RDONLY | O_CLOEXEC);
    int failed = file < 0 ? -1 : fsync(file);
    if (file >= 0) close(file);
    return failed;
}

static int flush_folder_of(const char *path) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return flush(folder[0] ? folder : "/", O_DIRECTORY);
}

int rename(const char *from, const char *to) {
    static int (*real)(const char *, const char *);
    if (!real) real = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    if (flush(from, 0)) return -1;
    return real(from, to) || flush_folder_of(to) ? -1 : 0;
}

int unlink(const char *path) {
    static int (*real)(const char *);
    if (!real) real = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    return real(path) || flush_folder_of(path) ? -1 : 0;
}
