/* The load generator of bench/broker.py, in C so that it is not the bottleneck. Each of the three modes prints one JSON line:

     produce BROKERS TOPIC PARTITIONS CLIENTS RECORDS RECORD_BYTES WARMUP [property=value ...]
     consume BROKERS TOPIC PARTITIONS CLIENTS RECORDS [property=value ...]
     pace    HOST PORT FRAME_FILE ERROR_AT RATE RECORDS WARMUP

   The first two use the librdkafka of confluent-kafka's wheel. The wheel contains no header, so the few functions that
   are used are declared here, as documented. Each of CLIENTS producers or consumers is a client of its own, in a thread
   of its own. RECORDS and WARMUP are the totals; a consumer reads its share from the start of the topic. The time
   starts when all clients are connected and have sent their warm-up. `pace` uses a plain socket: it sends the request
   in FRAME_FILE at a fixed rate, without waiting for responses, and measures the latency of each response. ERROR_AT is
   the position of the error code (16 bits) in the response, counted from its size field. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
struct rd_kafka_metadata;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER };
enum { RD_KAFKA_CONF_OK = 0 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *error, size_t error_size);
void rd_kafka_conf_set_opaque(rd_kafka_conf_t *, void *);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *error, size_t error_size);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *name, rd_kafka_topic_conf_t *);
int rd_kafka_metadata(rd_kafka_t *, int all, rd_kafka_topic_t *, const struct rd_kafka_metadata **, int timeout_ms);
void rd_kafka_metadata_destroy(const struct rd_kafka_metadata *);
const char *rd_kafka_err2str(int);
int rd_kafka_poll(rd_kafka_t *, int timeout_ms);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t, int flags, rd_kafka_message_t *, int count);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t offset, rd_kafka_queue_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t count);
void rd_kafka_message_destroy(rd_kafka_message_t *);
const char *rd_kafka_version_str(void);

#define CHUNK 500                 /* records per call of the library */
#define WINDOW_BYTES (64 << 20)   /* limit of unacknowledged bytes */
#define STALL_SECONDS 60

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void print_result(int64_t records, int64_t bytes, int64_t elapsed_ns) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("{\"records\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"generator_cpu\": %.3f, \"librdkafka\": \"%s\"}\n",
           (long long)records, (long long)bytes, elapsed_ns / 1e9, cpu, rd_kafka_version_str());
}

/* ---- librdkafka ---- */

typedef struct {
    rd_kafka_t *rk;
    rd_kafka_topic_t *topic;
    int number;                       /* of this client */
    int64_t acknowledged;             /* producer */
    int64_t records, bytes;           /* consumer */
} client_t;

/* The load of all clients. */
static struct {
    char *brokers, *topic, **properties, *payload;
    int property_count, partitions, clients, record_bytes;
    int64_t records, warmup;
    pthread_barrier_t start, end;
} load;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    if (message->err)
        fail("delivery", rd_kafka_err2str(message->err));
    ((client_t *)opaque)->acknowledged++;
}

static void connect_client(client_t *client, int type) {
    char error[512], name[256], group[32];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", load.brokers, error, sizeof error) != RD_KAFKA_CONF_OK)
        fail("bootstrap.servers", error);
    for (int i = 0; i < load.property_count; i++) {
        char *equals = strchr(load.properties[i], '=');
        if (!equals || equals - load.properties[i] >= (int)sizeof name)
            fail(load.properties[i], "not property=value");
        snprintf(name, equals - load.properties[i] + 1, "%s", load.properties[i]);
        if (rd_kafka_conf_set(conf, name, equals + 1, error, sizeof error) != RD_KAFKA_CONF_OK)
            fail(load.properties[i], error);
    }
    snprintf(group, sizeof group, "bench-%d", client->number);
    if (type == RD_KAFKA_CONSUMER && rd_kafka_conf_set(conf, "group.id", group, error, sizeof error) != RD_KAFKA_CONF_OK)
        fail("group.id", error);
    rd_kafka_conf_set_opaque(conf, client);
    if (type == RD_KAFKA_PRODUCER)
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    client->rk = rd_kafka_new(type, conf, error, sizeof error);
    if (!client->rk)
        fail("rd_kafka_new", error);
    client->topic = rd_kafka_topic_new(client->rk, load.topic, NULL);
    const struct rd_kafka_metadata *metadata;
    int failed = client->topic ? rd_kafka_metadata(client->rk, 0, client->topic, &metadata, 30000) : -1;
    if (failed)
        fail(load.topic, rd_kafka_err2str(failed));
    rd_kafka_metadata_destroy(metadata);
}

static int64_t share_of(int64_t total) {
    return total / load.clients;
}

static void await_acknowledged(client_t *client, int64_t wanted) {
    int64_t last = client->acknowledged, moved = now_ns();
    while (client->acknowledged < wanted) {
        rd_kafka_poll(client->rk, 100);
        if (client->acknowledged != last)
            last = client->acknowledged, moved = now_ns();
        else if (now_ns() - moved > STALL_SECONDS * 1000000000LL)
            fail("produce", "no acknowledgement for a minute");
    }
}

static void send_records(client_t *client, int64_t records) {
    rd_kafka_message_t messages[CHUNK];
    int64_t sent = 0, before = client->acknowledged, window = share_of(WINDOW_BYTES / load.record_bytes) + CHUNK;
    /* Clients start at different partitions. */
    int32_t partition = (int64_t)client->number * load.partitions / load.clients;
    while (sent < records) {
        int count = records - sent < CHUNK ? (int)(records - sent) : CHUNK;
        memset(messages, 0, sizeof messages);
        for (int i = 0; i < count; i++) {
            messages[i].payload = load.payload;  /* shared by all messages, neither copied nor freed */
            messages[i].len = load.record_bytes;
        }
        if (rd_kafka_produce_batch(client->topic, partition, 0, messages, count) != count)
            for (int i = 0; i < count; i++)
                if (messages[i].err)
                    fail("produce", rd_kafka_err2str(messages[i].err));
        sent += count;
        partition = (partition + 1) % load.partitions;
        rd_kafka_poll(client->rk, 0);
        if (sent - (client->acknowledged - before) > window)
            await_acknowledged(client, before + sent - window);
    }
    await_acknowledged(client, before + records);
}

static void *producer(void *argument) {
    client_t *client = argument;
    connect_client(client, RD_KAFKA_PRODUCER);
    send_records(client, share_of(load.warmup));
    pthread_barrier_wait(&load.start);
    send_records(client, share_of(load.records));
    client->records = share_of(load.records);
    client->bytes = client->records * load.record_bytes;
    pthread_barrier_wait(&load.end);
    return NULL;
}

static void *consumer(void *argument) {
    client_t *client = argument;
    rd_kafka_message_t *messages[1000];
    connect_client(client, RD_KAFKA_CONSUMER);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client->rk);
    pthread_barrier_wait(&load.start);
    int64_t moved = now_ns(), wanted = share_of(load.records);
    for (int32_t partition = 0; partition < load.partitions; partition++)
        if (rd_kafka_consume_start_queue(client->topic, partition, 0, queue))
            fail("consume", "cannot start consuming");
    while (client->records < wanted) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 100, messages, 1000);
        for (ssize_t i = 0; i < count; i++) {
            if (!messages[i]->err)
                client->records++, client->bytes += messages[i]->len;
            else if (messages[i]->err != -191)  /* the end of a partition is not an error */
                fail("consume", rd_kafka_err2str(messages[i]->err));
            rd_kafka_message_destroy(messages[i]);
        }
        if (count > 0)
            moved = now_ns();
        else if (now_ns() - moved > STALL_SECONDS * 1000000000LL)
            fail("consume", "no record for a minute");
    }
    pthread_barrier_wait(&load.end);
    return NULL;
}

/* Runs all clients and prints their total. */
static int run_clients(void *(*run)(void *)) {
    client_t *clients = calloc(load.clients, sizeof *clients);
    pthread_barrier_init(&load.start, NULL, load.clients + 1);
    pthread_barrier_init(&load.end, NULL, load.clients + 1);
    for (int i = 0; i < load.clients; i++) {
        pthread_t thread;
        clients[i].number = i;
        if (pthread_create(&thread, NULL, run, &clients[i]))
            fail("pthread_create", strerror(errno));
    }
    pthread_barrier_wait(&load.start);
    int64_t started = now_ns(), records = 0, bytes = 0;
    pthread_barrier_wait(&load.end);
    int64_t elapsed = now_ns() - started;
    for (int i = 0; i < load.clients; i++)
        records += clients[i].records, bytes += clients[i].bytes;
    print_result(records, bytes, elapsed);
    fflush(stdout);
    _exit(0);  /* a graceful exit would wait for fetches in flight */
}

static int produce(int argc, char **argv) {
    if (argc < 7)
        fail("produce", "too few arguments");
    load.brokers = argv[0], load.topic = argv[1], load.partitions = atoi(argv[2]), load.clients = atoi(argv[3]);
    load.records = atoll(argv[4]), load.record_bytes = atoi(argv[5]), load.warmup = atoll(argv[6]);
    load.properties = argv + 7, load.property_count = argc - 7;
    load.payload = malloc(load.record_bytes);
    uint32_t state = 12345;
    for (int i = 0; i < load.record_bytes; i++)
        load.payload[i] = (char)((state = state * 1664525 + 1013904223) >> 24);
    return run_clients(producer);
}

static int consume(int argc, char **argv) {
    if (argc < 5)
        fail("consume", "too few arguments");
    load.brokers = argv[0], load.topic = argv[1], load.partitions = atoi(argv[2]), load.clients = atoi(argv[3]);
    load.records = atoll(argv[4]);
    load.properties = argv + 5, load.property_count = argc - 5;
    return run_clients(consumer);
}

/* ---- a plain socket ---- */

static int by_size(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static int pace(int argc, char **argv) {
    if (argc != 7)
        fail("pace", "wrong number of arguments");
    size_t error_at = atoi(argv[3]);
    int64_t interval = 1000000000LL / atoi(argv[4]), records = atoll(argv[5]), warmup = atoll(argv[6]);
    int64_t total = records + warmup, sent = 0, received = 0;
    static unsigned char frame[1 << 20], reply[1 << 16];
    FILE *file = fopen(argv[2], "rb");
    size_t frame_bytes = file ? fread(frame, 1, sizeof frame, file) : 0, have = 0;
    if (!frame_bytes)
        fail(argv[2], "cannot read the file");
    int64_t *sent_at = calloc(total, sizeof *sent_at), *took = calloc(total, sizeof *took);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    inet_pton(AF_INET, argv[0], &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("connect", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    prctl(PR_SET_TIMERSLACK, 1);  /* wake on time, not up to 50 us late */

    int64_t started = now_ns();
    while (received < total) {
        int64_t now = now_ns(), due = started + sent * interval;
        if (sent < total && now >= due) {
            sent_at[sent++] = now;
            if (send(fd, frame, frame_bytes, 0) != (ssize_t)frame_bytes)
                fail("send", strerror(errno));
            continue;
        }
        int64_t wait = sent < total ? due - now : STALL_SECONDS * 1000000000LL;
        struct timespec timeout = {wait / 1000000000, wait % 1000000000};
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        if (ppoll(&readable, 1, &timeout, NULL) <= 0) {
            if (sent == total)
                fail("pace", "no response for a minute");
            continue;
        }
        ssize_t got = recv(fd, reply + have, sizeof reply - have, 0);
        int64_t arrived = now_ns();
        if (got <= 0)
            fail("recv", got ? strerror(errno) : "the broker closed the connection");
        have += got;
        size_t position = 0;
        while (have - position >= 4) {
            unsigned char *start = reply + position;
            size_t size = 4 + (((size_t)start[0] << 24) | (start[1] << 16) | (start[2] << 8) | start[3]);
            if (size > sizeof reply || size < error_at + 2)
                fail("pace", "a response has an unexpected size");
            if (have - position < size)
                break;
            if (start[error_at] || start[error_at + 1])
                fail("pace", "the response has an error code");
            took[received] = arrived - sent_at[received];
            received++;
            position += size;
        }
        memmove(reply, reply + position, have -= position);
    }
    qsort(took + warmup, records, sizeof *took, by_size);
    int64_t *sorted = took + warmup;
    printf("{\"records\": %lld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
           (long long)records, sorted[records / 2] / 1e3, sorted[records * 99 / 100] / 1e3,
           sorted[records * 999 / 1000] / 1e3, sorted[records - 1] / 1e3);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "produce"))
        return produce(argc - 2, argv + 2);
    if (argc > 2 && !strcmp(argv[1], "consume"))
        return consume(argc - 2, argv + 2);
    if (argc > 2 && !strcmp(argv[1], "pace"))
        return pace(argc - 2, argv + 2);
    fail(argv[0], "produce, consume or pace");
}
