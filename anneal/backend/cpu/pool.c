/* One pool of threads for all compiled kernels of a process, and the walk over a table of launches.

   A launch is cut into chunks of workgroups. Each thread has a share of the chunks, as far as possible the same from
   launch to launch, so that it finds its rows in its own cache; who is done helps the others. The next launch begins
   when all chunks are done. A thread that finds no work spins for a moment, then sleeps: to wake it takes as long as
   some ten chunks, so a table of few is run without it. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

enum { MOST = 64, SPINS = 10000, WAKES = 64 }; /* chunks that are worth waking a thread */

/* Work of less than so many nanoseconds is not worth another thread; a chunk of a launch has at least as much. */
enum { CHUNK_NS = 10000, MOST_CHUNKS = 64 };

/* A row of a table. `worth` is the estimated nanoseconds on one core; the first of the sizes is how many workgroups. */
typedef struct {
  void (*kernel)(void **, long, long);
  void **memory;
  const int *sizes;
  int64_t worth;
} launch;

/* Chunks of the launch `number` that a thread has left: from `next` up to `end`. One word, so that who takes a chunk
   takes it of the launch that it has seen. */
typedef union {
  uint64_t word;
  struct { uint32_t number; uint16_t next, end; } is;
} share;

typedef struct { _Alignas(64) _Atomic uint64_t word; } place;

static int64_t chunks(const launch *l) {
  int64_t count = l->worth / CHUNK_NS;
  if (count > MOST_CHUNKS) count = MOST_CHUNKS;
  if (count > *l->sizes) count = *l->sizes;
  return count > 1 ? count : 1;
}

static place shares[MOST];
static launch now;
static _Alignas(64) _Atomic int64_t done;
static _Alignas(64) _Atomic uint32_t number;
static _Atomic int sleeping, running;
static int started; /* threads besides the caller's */
static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER, asleep = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static inline void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Run a chunk of the share at `at`, if it has one. */
static int take(int at) {
  share old = {atomic_load_explicit(&shares[at].word, memory_order_acquire)}, left;
  do {
    if (old.is.next >= old.is.end) return 0;
    left = old;
    left.is.next += 1;
  } while (!atomic_compare_exchange_weak_explicit(&shares[at].word, &old.word, left.word, memory_order_acq_rel,
                                                  memory_order_acquire));
  int64_t n = *now.sizes, c = chunks(&now), k = old.is.next;
  now.kernel(now.memory, n * k / c, n * (k + 1) / c);
  atomic_fetch_add_explicit(&done, 1, memory_order_release);
  return 1;
}

static void work(int self, int threads) {
  for (int n = 0; n < threads; n += 1) {
    int at = self + n < threads ? self + n : self + n - threads;
    while (take(at)) {}
  }
}

static void *serve(void *self) {
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (atomic_load_explicit(&number, memory_order_acquire) == seen) {
      if (++spins < SPINS) {
        rest();
        continue;
      }
      pthread_mutex_lock(&asleep);
      atomic_fetch_add(&sleeping, 1);
      while (atomic_load(&number) == seen) pthread_cond_wait(&wake, &asleep);
      atomic_fetch_sub(&sleeping, 1);
      pthread_mutex_unlock(&asleep);
    }
    seen = atomic_load_explicit(&number, memory_order_acquire);
    work((int)(intptr_t)self, atomic_load_explicit(&running, memory_order_relaxed));
  }
  return 0;
}

static void spread(const launch *l, int64_t count, int threads) {
  now = *l;
  atomic_store_explicit(&done, 0, memory_order_relaxed);
  atomic_store_explicit(&running, threads, memory_order_relaxed);
  uint32_t next = atomic_load_explicit(&number, memory_order_relaxed) + 1;
  for (int t = 0; t < threads; t += 1) {
    share s = {.is = {next, count * t / threads, count * (t + 1) / threads}};
    atomic_store_explicit(&shares[t].word, s.word, memory_order_release);
  }
  atomic_store(&number, next);
  if (atomic_load(&sleeping)) {
    pthread_mutex_lock(&asleep);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&asleep);
  }
  work(0, threads);
  for (int spins = 1; atomic_load_explicit(&done, memory_order_acquire) != count; spins += 1) {
    if (spins % SPINS) rest();
    else sched_yield();
  }
}

/* Products of matrices by BLAS: the workgroups are blocks of rows (or of columns, whichever are more) of one product
   after another. memory[3] describes them, as `BlasProduct.sizes` in products.py does. */

typedef struct { int extent, a, b, c; } axis; /* and steps in elements of each */
typedef void sgemm64(int, int, int, int64_t, int64_t, int64_t, float, const void *, int64_t, const void *, int64_t,
                     float, void *, int64_t);
typedef void dgemm64(int, int, int, int64_t, int64_t, int64_t, double, const void *, int64_t, const void *, int64_t,
                     double, void *, int64_t);
typedef void sgemm32(int, int, int, int, int, int, float, const void *, int, const void *, int, float, void *, int);
typedef void dgemm32(int, int, int, int, int, int, double, const void *, int, const void *, int, double, void *, int);

static void *blas_of_floats, *blas_of_doubles;
static int wide; /* whether BLAS's integers have 64 bits */

void use_blas(void *floats, void *doubles, int of_64_bits) {
  blas_of_floats = floats;
  blas_of_doubles = doubles;
  wide = of_64_bits;
}

static int larger(int x, int y) { return x > y ? x : y; }

static void moved(const axis *axes, int count, int64_t at, int64_t *a, int64_t *b, int64_t *c) {
  for (int n = count - 1; n >= 0; n -= 1) {
    int64_t i = at % axes[n].extent;
    at /= axes[n].extent;
    *a += i * axes[n].a;
    *b += i * axes[n].b;
    *c += i * axes[n].c;
  }
}

void multiply(void **memory, long begin, long end) {
  const int *d = memory[3];
  int size = d[0], blocks = d[1], batches = d[5], sums = d[6] - 3 - batches, times = 1;
  const axis *m = (const axis *)(d + 7), *n = m + 1, *k = m + 2, *batch = m + 3, *outer = batch + batches;
  int ta = k->a == 1 ? 111 : 112, tb = n->b == 1 ? 111 : 112; /* a matrix by rows, or by columns */
  int64_t lda = ta == 111 ? larger(m->a, k->extent) : larger(k->a, m->extent), ldc = m->c;
  int64_t ldb = tb == 111 ? larger(k->b, n->extent) : larger(n->b, k->extent);
  void *blas = size == 4 ? blas_of_floats : blas_of_doubles;
  for (int s = 0; s < sums; s += 1) times *= outer[s].extent;
  for (long at = begin; at < end; at += 1) {
    int64_t block = at % blocks, rows = m->extent, columns = n->extent, a0 = d[2], b0 = d[3], c0 = d[4];
    moved(batch, batches, at / blocks, &a0, &b0, &c0);
    if (m->extent >= n->extent) {
      int64_t first = m->extent * block / blocks;
      rows = m->extent * (block + 1) / blocks - first;
      a0 += first * m->a;
      c0 += first * m->c;
    } else {
      int64_t first = n->extent * block / blocks;
      columns = n->extent * (block + 1) / blocks - first;
      b0 += first * n->b;
      c0 += first;
    }
    for (int t = 0; t < times; t += 1) {
      int64_t a1 = a0, b1 = b0, c1 = c0;
      moved(outer, sums, t, &a1, &b1, &c1);
      const char *a = (char *)memory[0] + a1 * size, *b = (char *)memory[1] + b1 * size;
      char *c = (char *)memory[2] + c0 * size;
      double beta = t ? 1 : 0;
      if (wide && size == 4)
        ((sgemm64 *)blas)(101, ta, tb, rows, columns, k->extent, 1, a, lda, b, ldb, beta, c, ldc);
      else if (wide)
        ((dgemm64 *)blas)(101, ta, tb, rows, columns, k->extent, 1, a, lda, b, ldb, beta, c, ldc);
      else if (size == 4)
        ((sgemm32 *)blas)(101, ta, tb, rows, columns, k->extent, 1, a, lda, b, ldb, beta, c, ldc);
      else
        ((dgemm32 *)blas)(101, ta, tb, rows, columns, k->extent, 1, a, lda, b, ldb, beta, c, ldc);
    }
  }
}

/* Run `count` launches, one after another, on so many threads, the caller's among them. A caller that comes while
   another is here runs alone. */
void run(const launch *table, int64_t count, int64_t threads) {
  int mine = threads > 1 && pthread_mutex_trylock(&owner) == 0;
  if (threads > MOST) threads = MOST;
  while (mine && started < threads - 1) {
    pthread_t t;
    if (pthread_create(&t, 0, serve, (void *)(intptr_t)(started + 1))) break;
    pthread_detach(t);
    started += 1;
  }
  if (threads > started + 1) threads = started + 1;
  if (atomic_load(&sleeping)) {
    int64_t shared = 0;
    for (const launch *l = table; l < table + count; l += 1) shared += chunks(l) > 1 ? chunks(l) : 0;
    if (shared < WAKES) threads = 1;
  }
  for (const launch *l = table; l < table + count; l += 1) {
    if (mine && threads > 1 && chunks(l) > 1) spread(l, chunks(l), (int)threads);
    else l->kernel(l->memory, 0, *l->sizes);
  }
  if (mine) pthread_mutex_unlock(&owner);
}

/* The child of a fork has none of the threads, and perhaps locks that they held. */
void forked(void) {
  pthread_mutex_init(&owner, 0);
  pthread_mutex_init(&asleep, 0);
  pthread_cond_init(&wake, 0);
  started = 0;
  atomic_store(&sleeping, 0);
  for (int t = 0; t < MOST; t += 1) atomic_store(&shares[t].word, 0);
}
