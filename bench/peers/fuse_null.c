/* The least a FUSE file system can be: an empty root directory. Mounts itself through
 * fusermount3, has its child look up names that are not there, and prints the
 * microseconds of one such round trip. usage: fuse_null DIR COUNT */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* fusermount3 opens /dev/fuse, mounts, and hands the descriptor over a socket. */
static int mount_at(const char *place) {
    int pair[2];
    char number[16], room[CMSG_SPACE(sizeof(int))], byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return -1;
    snprintf(number, sizeof number, "%d", pair[0]);
    if (fork() == 0) {
        close(pair[1]);
        setenv("_FUSE_COMMFD", number, 1);
        execlp("fusermount3", "fusermount3", "-o", "fsname=fuse_null", "--", place, (char *)NULL);
        _exit(127);
    }
    close(pair[0]);
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(pair[1], &message, 0) <= 0 || !CMSG_FIRSTHDR(&message)) return -1;
    wait(NULL);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void reply(int fd, const struct fuse_in_header *in, int error, const void *body, size_t length) {
    struct fuse_out_header out = {.len = sizeof out + length, .error = -error, .unique = in->unique};
    struct iovec parts[] = {{&out, sizeof out}, {(void *)body, length}};
    if (writev(fd, parts, length ? 2 : 1) < 0 && errno != ENOENT) exit(1);
}

static void answer(int fd, const struct fuse_in_header *in) {
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
    struct fuse_attr_out root = {.attr = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2, .uid = getuid(), .gid = getgid()}};
    switch (in->opcode) {
    case FUSE_INIT: reply(fd, in, 0, &init, sizeof init); break;
    case FUSE_GETATTR: reply(fd, in, 0, &root, sizeof root); break;
    case FUSE_LOOKUP: reply(fd, in, ENOENT, NULL, 0); break;
    case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break;
    default: reply(fd, in, ENOSYS, NULL, 0);
    }
}

static void measure(const char *place, long count) {
    char name[4200];
    struct timespec from, to;
    struct stat found;
    snprintf(name, sizeof name, "%s/absent", place);
    for (long warm = 0; warm < 100; warm++) (void)!stat(name, &found);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long at = 0; at < count; at++)
        if (stat(name, &found) == 0 || errno != ENOENT) _exit(1);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.3f\n", ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / 1e3 / count);
    fflush(stdout);
    _exit(0);
}

static void unmount(const char *place) {
    if (fork() == 0) {
        execlp("fusermount3", "fusermount3", "-u", "-z", "--", place, (char *)NULL);
        _exit(127);
    }
    wait(NULL);
}

int main(int count, char **words) {
    static char buffer[1 << 16] __attribute__((aligned(8)));
    if (count != 3) return 2;
    int fd = mount_at(words[1]);
    if (fd < 0) return 1;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fd);
        measure(words[1], atol(words[2]));
    }
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (read(fd, buffer, sizeof buffer) > 0 || errno == EINTR || errno == ENOENT) answer(fd, (void *)buffer);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    unmount(words[1]);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
