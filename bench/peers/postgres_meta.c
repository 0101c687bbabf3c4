/* A file system's metadata in PostgreSQL, durable as it comes: the rows of sqlite_meta.c.
 * Prints operations per second.
 *
 * usage: postgres_meta SOCKET-FOLDER fill   CALLERS COUNT DIRS   makes COUNT files, in one statement for each table
 *        postgres_meta SOCKET-FOLDER lookup CALLERS COUNT DIRS   each a name found before
 *        postgres_meta SOCKET-FOLDER rename CALLERS COUNT DIRS   one transaction per rename of a file made before the clock starts
 *        postgres_meta SOCKET-FOLDER list   CALLERS COUNT DIRS   one whole directory, in pages of 1000; entries per second
 *
 * Each caller has a connection, and everything it asks is prepared or one call of a
 * function on the server: one round trip for each operation. */
#define _GNU_SOURCE
#include <endian.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INODE_BYTES = 96, NAME_MAX_BYTES = 64, WORDS_MAX = 4 };
static const char *const schema =
    "set client_min_messages = warning;"
    "create table if not exists inode(id bigint primary key, body bytea);"
    "create table if not exists entry(dir bigint, name bytea, id bigint, cookie bigint, primary key(dir, name));"
    "create table if not exists cookie(dir bigint, cookie bigint, name bytea, primary key(dir, cookie));"
    "create table if not exists back(id bigint, dir bigint, cookie bigint, name bytea, primary key(id, dir, cookie));"
    "create table if not exists counter(dir bigint primary key, entries bigint, changed bigint);"
    "create table if not exists note(seq bigserial primary key, body bytea);"
    "create or replace function name_of(id bigint) returns bytea immutable language sql as"
    " $$ select convert_to('file-' || lpad(id::text, 10, '0') || '.dat', 'UTF8') $$;"
    "create or replace function rename_one(bigint, bytea, bigint, bytea) returns void language sql as $$"
    "  delete from cookie where dir = $3 and cookie = (select cookie from entry where dir = $3 and name = $2);"
    "  delete from back where id = (select id from entry where dir = $3 and name = $2);"
    "  insert into entry(dir, name, id, cookie) select dir, $4, id, $1 from entry where dir = $3 and name = $2;"
    "  delete from entry where dir = $3 and name = $2;"
    "  insert into cookie(dir, cookie, name) values($3, $1, $4);"
    "  insert into back(id, dir, cookie, name) select id, $3, $1, $4 from entry where dir = $3 and name = $4;"
    "  update counter set changed = $1 where dir = $3;"
    "  insert into note(body) values(decode(repeat('00', 120), 'hex'));"
    "  insert into note(body) values(decode(repeat('00', 120), 'hex')); $$;";
/* Of the files from $1 up to $2, in $3 directories. */
static const char *const fill_rows[] = {
    "insert into inode select id, decode(repeat('00', 96), 'hex') from generate_series($1::bigint, $2::bigint - 1) id",
    "insert into entry select id % $3::bigint, name_of(id), id, id from generate_series($1::bigint, $2::bigint - 1) id",
    "insert into cookie select id % $3::bigint, id, name_of(id) from generate_series($1::bigint, $2::bigint - 1) id",
    "insert into back select id, id % $3::bigint, id, name_of(id) from generate_series($1::bigint, $2::bigint - 1) id",
    "insert into counter select dir, 0, 0 from generate_series(0, $3::bigint - 1) dir where $1::bigint < $2::bigint on conflict do nothing",
};

static const char *folder, *mode;
static long callers, count, dirs, base;

static PGresult *must(PGconn *db, PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return result;
    fprintf(stderr, "postgres: %s\n", PQerrorMessage(db));
    exit(1);
}

static PGconn *connect_to(void) {
    char where[4096];
    snprintf(where, sizeof where, "host=%s user=weft dbname=postgres", folder);
    PGconn *db = PQconnectdb(where);
    if (PQstatus(db) != CONNECTION_OK) { fprintf(stderr, "postgres: %s\n", PQerrorMessage(db)); exit(1); }
    return db;
}

/* A value of a prepared statement: bytes as they are, or a number. */
struct word { const char *bytes; int length; uint64_t number; };

static struct word number(long value) { return (struct word){ .length = 8, .number = htobe64((uint64_t)value) }; }
static struct word text(const char *bytes) { return (struct word){ .bytes = bytes, .length = strlen(bytes) }; }

static PGresult *ask(PGconn *db, const char *statement, int count, const struct word *word) {
    const char *value[WORDS_MAX];
    int length[WORDS_MAX], binary[WORDS_MAX];
    for (int at = 0; at < count; at++) {
        value[at] = word[at].bytes ? word[at].bytes : (const char *)&word[at].number;
        length[at] = word[at].length;
        binary[at] = 1;
    }
    return must(db, PQexecPrepared(db, statement, count, value, length, binary, 1));
}

static void prepare(PGconn *db, const char *name, const char *statement) { PQclear(must(db, PQprepare(db, name, statement, 0, NULL))); }

static void name_of(char *name, const char *kind, long id) { snprintf(name, NAME_MAX_BYTES, "%s-%010ld.dat", kind, id); }

static void fill(PGconn *db, long from, long upto) {
    for (unsigned at = 0; at < sizeof fill_rows / sizeof *fill_rows; at++) {
        char words[3][24];
        const char *value[] = { words[0], words[1], words[2] };
        snprintf(words[0], sizeof *words, "%ld", from);
        snprintf(words[1], sizeof *words, "%ld", upto);
        snprintf(words[2], sizeof *words, "%ld", dirs);
        int wants = strstr(fill_rows[at], "$3") ? 3 : 2;
        PQclear(must(db, PQexecParams(db, fill_rows[at], wants, NULL, value, NULL, NULL, 0)));
    }
    PQclear(must(db, PQexec(db, "vacuum analyze")));
}

static void *look_up(void *arg) {
    PGconn *db = connect_to();
    prepare(db, "one", "select inode.id, body from entry join inode on inode.id = entry.id where dir = $1::bigint and name = $2::bytea");
    unsigned long state = 88172645463325252UL + (long)arg;
    char name[NAME_MAX_BYTES];
    for (long at = 0; at < count / callers; at++) {
        state ^= state << 13; state ^= state >> 7; state ^= state << 17;
        long id = state % base;
        name_of(name, "file", id);
        PGresult *found = ask(db, "one", 2, (struct word[]){ number(id % dirs), text(name) });
        if (PQntuples(found) != 1 || PQgetlength(found, 0, 1) != INODE_BYTES) { fprintf(stderr, "%s is not there\n", name); exit(1); }
        PQclear(found);
    }
    PQfinish(db);
    return NULL;
}

static void *rename_all(void *arg) {
    PGconn *db = connect_to();
    prepare(db, "one", "select rename_one($1::bigint, $2::bytea, $3::bigint, $4::bytea)");
    char from[NAME_MAX_BYTES], to[NAME_MAX_BYTES];
    long share = count / callers;
    for (long at = 0; at < share; at++) {
        long id = base + (long)arg * share + at;
        name_of(from, "file", id);
        name_of(to, "renamed", id);
        PQclear(ask(db, "one", 4, (struct word[]){ number(id | 1L << 40), text(from), number(id % dirs), text(to) }));
    }
    PQfinish(db);
    return NULL;
}

/* Pages by cookie, with attributes: what a mount asks for. Lists until COUNT entries were seen. */
static void *list(void *arg) {
    PGconn *db = connect_to();
    prepare(db, "page",
        "select cookie.cookie, cookie.name, inode.body from cookie join entry on entry.dir = cookie.dir and entry.name = cookie.name"
        " join inode on inode.id = entry.id where cookie.dir = $1::bigint and cookie.cookie > $2::bigint order by cookie.cookie limit 1000");
    long seen = 0, after = -1, dir = (long)arg % dirs;
    while (seen < count / callers) {
        PGresult *page = ask(db, "page", 2, (struct word[]){ number(dir), number(after) });
        int rows = PQntuples(page);
        for (int row = 0; row < rows; row++) seen += PQgetlength(page, row, 2) == INODE_BYTES;
        if (rows == 0 && after < 0) exit(1);
        if (rows == 0) after = -1;
        else { uint64_t last; memcpy(&last, PQgetvalue(page, rows - 1, 0), 8); after = (long)be64toh(last); }
        PQclear(page);
    }
    PQfinish(db);
    return NULL;
}

int main(int words, char **word) {
    if (words != 6) return 2;
    folder = word[1], mode = word[2], callers = atol(word[3]), count = atol(word[4]), dirs = atol(word[5]);
    PGconn *db = connect_to();
    PQclear(must(db, PQexec(db, schema)));
    PGresult *most = must(db, PQexec(db, "select coalesce(max(id) + 1, 0) from inode"));
    base = atol(PQgetvalue(most, 0, 0));
    PQclear(most);
    struct timespec from, to;
    int filling = !strcmp(mode, "fill");
    if (!strcmp(mode, "rename")) fill(db, base, base + count);
    void *(*act)(void *) = !strcmp(mode, "rename") ? rename_all : !strcmp(mode, "list") ? list : look_up;
    pthread_t threads[callers];
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (filling) fill(db, base, base + count);
    for (long at = 0; at < callers && !filling; at++) if (pthread_create(&threads[at], NULL, act, (void *)at)) return 1;
    for (long at = 0; at < callers && !filling; at++) pthread_join(threads[at], NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    PQfinish(db);
    printf("%.1f\n", count / callers * callers / ((to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9));
    return 0;
}
