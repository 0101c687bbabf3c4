/* The least a server can do for a durable PUT: socket -> pwrite -> fsync -> rename ->
 * fsync of the directory, then the answer. A thread per connection, keep-alive.
 * usage: put PORT DIR */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_MAX = 16 << 10, PIECE = 1 << 20 };
static int folder;
static const char answer[] = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";

static int store(int from, const char *name, long left, char *piece, long have) {
    char part[300];
    snprintf(part, sizeof part, ".%s.%d", name, from);
    int file = openat(folder, part, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    for (off_t at = 0; file >= 0 && left > 0; have = 0) {
        if (have == 0) have = recv(from, piece, left < PIECE ? left : PIECE, 0);
        if (have <= 0 || pwrite(file, piece, have, at) != have) return -1;
        at += have;
        left -= have;
    }
    if (file < 0 || fsync(file) || close(file)) return -1;
    return renameat(folder, part, folder, name) || fsync(folder) ? -1 : 0;
}

static void *serve(void *arg) {
    int from = (int)(long)arg, one = 1;
    char *head = malloc(HEAD_MAX + 1), *piece = malloc(PIECE);
    setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (long have = 0;;) {
        long n = recv(from, head + have, HEAD_MAX - have, 0);
        if (n <= 0) break;
        have += n;
        head[have] = 0;
        char name[256], *end = strstr(head, "\r\n\r\n"), *length = strcasestr(head, "\r\ncontent-length:");
        if (!end) continue;
        if (!length || sscanf(head, "PUT /%255[^ /]", name) != 1) break;
        long body = atol(length + 17), first = have - (end + 4 - head);
        if (first > body) first = body;
        memcpy(piece, end + 4, first);
        if (store(from, name, body, piece, first) || send(from, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0) break;
        have = 0;
    }
    close(from);
    free(head);
    free(piece);
    return NULL;
}

int main(int count, char **words) {
    if (count != 3 || (folder = open(words[2], O_DIRECTORY)) < 0) return 2;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 128)) return 1;
    for (pthread_t thread;;) {
        long from = accept(listener, NULL, NULL);
        if (from < 0 || pthread_create(&thread, NULL, serve, (void *)from) || pthread_detach(thread)) return 1;
    }
}
