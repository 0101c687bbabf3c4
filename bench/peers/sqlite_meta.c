/* A file system's metadata in SQLite (WAL, synchronous=FULL): rows of the shape Weft
 * keeps for each name. Prints operations per second.
 *
 * usage: sqlite_meta DB create  CALLERS COUNT DIRS   one transaction per create
 *        sqlite_meta DB grouped CALLERS COUNT DIRS   one transaction per batch of waiting callers
 *        sqlite_meta DB lookup  CALLERS COUNT DIRS   each a name found before
 *        sqlite_meta DB rename  CALLERS COUNT DIRS   one transaction per rename of a file made before the clock starts
 *        sqlite_meta DB files   CALLERS COUNT DIRS   what rename does before that
 *        sqlite_meta DB list    CALLERS COUNT DIRS   one whole directory, in pages of 1000; entries per second
 *
 * Writers share one connection under a mutex: with a connection each they would spend
 * the run in SQLite's busy handler. Readers have a connection each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INODE_BYTES = 96, NOTE_BYTES = 120, NAME_MAX_BYTES = 64, GROUP_MAX = 256, PAGE = 1000 };
/* More memory than any figure fills: Weft takes what fits its machine. */
static const char *const schema =
    "pragma journal_mode=wal; pragma synchronous=full; pragma temp_store=memory; pragma cache_size=-2097152;"
    "pragma wal_autocheckpoint=4000;"
    "create table if not exists inode(id integer primary key, body blob);"
    "create table if not exists entry(dir integer, name blob, id integer, cookie integer, primary key(dir, name)) without rowid;"
    "create table if not exists cookie(dir integer, cookie integer, name blob, primary key(dir, cookie)) without rowid;"
    "create table if not exists back(id integer, dir integer, cookie integer, name blob, primary key(id, dir, cookie)) without rowid;"
    "create table if not exists counter(dir integer primary key, entries integer, changed integer);"
    "create table if not exists note(seq integer primary key, body blob);";
static const char *const create_rows[] = {
    "insert into inode(id, body) values(?1, ?2)",
    "insert into entry(dir, name, id, cookie) values(?3, ?4, ?1, ?1)",
    "insert into cookie(dir, cookie, name) values(?3, ?1, ?4)",
    "insert into back(id, dir, cookie, name) values(?1, ?3, ?1, ?4)",
    "insert into counter(dir, entries, changed) values(?3, 1, ?1) on conflict(dir) do update set entries = entries + 1, changed = ?1",
    "insert into note(body) values(?5)", /* the change feed */
    "insert into note(body) values(?5)", /* the audit */
};
static const char *const rename_rows[] = {
    "delete from cookie where dir = ?3 and cookie = (select cookie from entry where dir = ?3 and name = ?2)",
    "delete from back where id = (select id from entry where dir = ?3 and name = ?2)",
    "insert into entry(dir, name, id, cookie) select dir, ?4, id, ?1 from entry where dir = ?3 and name = ?2",
    "delete from entry where dir = ?3 and name = ?2",
    "insert into cookie(dir, cookie, name) values(?3, ?1, ?4)",
    "insert into back(id, dir, cookie, name) select id, ?3, ?1, ?4 from entry where dir = ?3 and name = ?4",
    "update counter set changed = ?1 where dir = ?3",
    "insert into note(body) values(?5)",
    "insert into note(body) values(?5)",
};
enum { CREATE_ROWS = sizeof create_rows / sizeof *create_rows, RENAME_ROWS = sizeof rename_rows / sizeof *rename_rows };

static sqlite3 *writer;
static sqlite3_stmt *create[CREATE_ROWS], *change[RENAME_ROWS], *begin, *commit;
static const char *path, *mode;
static long callers, count, dirs, next_id, base;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER, queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
/* Readers wait here once all that they will read is resident; the clock starts. */
static pthread_barrier_t warm;

static void must(int code) {
    if (code == SQLITE_OK || code == SQLITE_DONE || code == SQLITE_ROW) return;
    fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(writer));
    exit(1);
}

static sqlite3 *connect_to(void) {
    sqlite3 *db;
    must(sqlite3_open(path, &db));
    must(sqlite3_busy_timeout(db, 10000));
    must(sqlite3_exec(db, schema, NULL, NULL, NULL));
    return db;
}

static sqlite3_stmt *prepared(sqlite3 *db, const char *text) {
    sqlite3_stmt *made;
    must(sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT, &made, NULL));
    return made;
}

static void run(sqlite3_stmt *one) {
    must(sqlite3_step(one));
    must(sqlite3_reset(one));
}

static void row(sqlite3_stmt *one, long id, const char *second, int second_length, long dir, const char *name) {
    static const char note[NOTE_BYTES];
    int wants = sqlite3_bind_parameter_count(one);
    if (wants >= 1) must(sqlite3_bind_int64(one, 1, id));
    if (wants >= 2) must(sqlite3_bind_blob(one, 2, second, second_length, SQLITE_STATIC));
    if (wants >= 3) must(sqlite3_bind_int64(one, 3, dir));
    if (wants >= 4) must(sqlite3_bind_blob(one, 4, name, strlen(name), SQLITE_STATIC));
    if (wants >= 5) must(sqlite3_bind_blob(one, 5, note, NOTE_BYTES, SQLITE_STATIC));
    run(one);
}

static void name_of(char *name, const char *kind, long id) { snprintf(name, NAME_MAX_BYTES, "%s-%010ld.dat", kind, id); }

static void create_one(long id) {
    static const char inode[INODE_BYTES];
    char name[NAME_MAX_BYTES];
    name_of(name, "file", id);
    for (int at = 0; at < CREATE_ROWS; at++) row(create[at], id, inode, INODE_BYTES, id % dirs, name);
}

static void rename_one(long id) {
    char from[NAME_MAX_BYTES], to[NAME_MAX_BYTES];
    name_of(from, "file", id);
    name_of(to, "renamed", id);
    for (int at = 0; at < RENAME_ROWS; at++) row(change[at], id | 1L << 40, from, strlen(from), id % dirs, to);
}

static void *write_alone(void *arg) {
    long share = count / callers;
    int renaming = !strcmp(mode, "rename");
    for (long at = 0; at < share; at++) {
        pthread_mutex_lock(&writing);
        run(begin);
        if (renaming) rename_one(base + (long)arg * share + at);
        else create_one(base + next_id++);
        run(commit);
        pthread_mutex_unlock(&writing);
    }
    return NULL;
}

/* Callers queue their wish; whoever finds nobody writing takes all that wait and writes
 * them as one transaction. */
static long wished, served;
static int somebody_writes;

static void *write_grouped(void *arg) {
    (void)arg;
    for (long at = 0; at < count / callers; at++) {
        pthread_mutex_lock(&queue);
        long mine = ++wished;
        while (served < mine) {
            if (somebody_writes) { pthread_cond_wait(&arrived, &queue); continue; }
            somebody_writes = 1;
            long from = served, upto = wished - from > GROUP_MAX ? from + GROUP_MAX : wished;
            pthread_mutex_unlock(&queue);
            run(begin);
            for (long id = from; id < upto; id++) create_one(base + id);
            run(commit);
            pthread_mutex_lock(&queue);
            served = upto;
            somebody_writes = 0;
            pthread_cond_broadcast(&arrived);
        }
        pthread_mutex_unlock(&queue);
    }
    return NULL;
}

static void look_up_one(sqlite3_stmt *one, long id) {
    char name[NAME_MAX_BYTES];
    name_of(name, "file", id);
    must(sqlite3_bind_int64(one, 1, id % dirs));
    must(sqlite3_bind_blob(one, 2, name, strlen(name), SQLITE_STATIC));
    if (sqlite3_step(one) != SQLITE_ROW || sqlite3_column_bytes(one, 1) != INODE_BYTES) { fprintf(stderr, "%s is not there\n", name); exit(1); }
    must(sqlite3_reset(one));
}

static void *look_up(void *arg) {
    sqlite3 *db = connect_to();
    sqlite3_stmt *one = prepared(db, "select inode.id, body from entry join inode on inode.id = entry.id where dir = ?1 and name = ?2");
    unsigned long state = 88172645463325252UL + (long)arg;
    for (long id = 0; id < base; id++) look_up_one(one, id);
    pthread_barrier_wait(&warm);
    for (long at = 0; at < count / callers; at++) {
        state ^= state << 13; state ^= state >> 7; state ^= state << 17;
        look_up_one(one, state % base);
    }
    sqlite3_close_v2(db);
    return NULL;
}

/* Pages by cookie, with attributes: what a mount asks for. Lists the whole once, and then until COUNT entries were seen. */
static void *list(void *arg) {
    sqlite3 *db = connect_to();
    sqlite3_stmt *page = prepared(db,
        "select cookie.cookie, cookie.name, inode.body from cookie join entry on entry.dir = cookie.dir and entry.name = cookie.name"
        " join inode on inode.id = entry.id where cookie.dir = ?1 and cookie.cookie > ?2 order by cookie.cookie limit ?3");
    long seen = 0, after = -1, dir = (long)arg % dirs, whole = base / dirs;
    int is_warm = 0;
    while (seen < (is_warm ? count / callers : whole)) {
        long before = seen;
        must(sqlite3_bind_int64(page, 1, dir));
        must(sqlite3_bind_int64(page, 2, after));
        must(sqlite3_bind_int64(page, 3, PAGE));
        while (sqlite3_step(page) == SQLITE_ROW) { after = sqlite3_column_int64(page, 0); seen += sqlite3_column_bytes(page, 2) == INODE_BYTES; }
        must(sqlite3_reset(page));
        if (seen == before) { if (after < 0) exit(1); after = -1; }
        if (is_warm || seen < whole) continue;
        pthread_barrier_wait(&warm);
        is_warm = 1, seen = 0;
    }
    sqlite3_close_v2(db);
    return NULL;
}

int main(int words, char **word) {
    if (words != 6) return 2;
    path = word[1], mode = word[2], callers = atol(word[3]), count = atol(word[4]), dirs = atol(word[5]);
    void *(*act)(void *) = !strcmp(mode, "grouped") ? write_grouped : !strcmp(mode, "lookup") ? look_up : !strcmp(mode, "list") ? list : write_alone;
    writer = connect_to();
    for (int at = 0; at < CREATE_ROWS; at++) create[at] = prepared(writer, create_rows[at]);
    for (int at = 0; at < RENAME_ROWS; at++) change[at] = prepared(writer, rename_rows[at]);
    begin = prepared(writer, "begin immediate");
    commit = prepared(writer, "commit");
    sqlite3_stmt *most = prepared(writer, "select coalesce(max(id) + 1, 0) from inode");
    must(sqlite3_step(most));
    base = sqlite3_column_int64(most, 0);
    must(sqlite3_finalize(most));
    int only_files = !strcmp(mode, "files");
    if (only_files || !strcmp(mode, "rename")) {
        run(begin);
        for (long id = 0; id < count; id++) create_one(base + id);
        run(commit);
    }
    pthread_t threads[callers];
    struct timespec from, to;
    int reading = act == look_up || act == list;
    if (pthread_barrier_init(&warm, NULL, callers + 1)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (only_files) count = 0;
    for (long at = 0; at < callers; at++) if (pthread_create(&threads[at], NULL, act, (void *)at)) return 1;
    if (reading) {
        pthread_barrier_wait(&warm);
        clock_gettime(CLOCK_MONOTONIC, &from);
    }
    for (long at = 0; at < callers; at++) pthread_join(threads[at], NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.1f\n", count / callers * callers / ((to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9));
    return 0;
}
