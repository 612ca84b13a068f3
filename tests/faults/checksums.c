// XXH3 for Python: checksums of mutated files are made right again.
#define XXH_INLINE_ALL
#include <xxhash.h>

void xxh3_128(const void* data, size_t bytes, unsigned long long* out) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  out[0] = hash.low64;
  out[1] = hash.high64;
}

unsigned long long xxh3_64(const void* data, size_t bytes) {
  return XXH3_64bits(data, bytes);
}
