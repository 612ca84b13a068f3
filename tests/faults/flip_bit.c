/* A tool of Kokkos that flips one bit of an arena of one rank: when kernel number FLIP_LAUNCH of FLIP_STEP's kernels
 * FLIP_KERNEL begins, in the byte at FLIP_SHARE of the arena FLIP_ARENA. Steps are counted by the region "step". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct SpaceHandle {
  char name[64];
};

static unsigned char* arena;
static uint64_t arena_bytes;
static long step, launch;

static const char* word(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

static int chosen(void) {
  const char* rank = *word("PMI_RANK") ? word("PMI_RANK") : word("SLURM_PROCID");
  return strcmp(*rank ? rank : "0", word("FLIP_RANK")) == 0;
}

void kokkosp_init_library(const int sequence, const uint64_t version, const uint32_t count, void* info) {
  (void)sequence, (void)version, (void)count, (void)info;
}

void kokkosp_allocate_data(const struct SpaceHandle space, const char* label, const void* data, const uint64_t bytes) {
  (void)space;
  if (strcmp(label, word("FLIP_ARENA")) != 0) return;
  arena = (unsigned char*)data;
  arena_bytes = bytes;
}

void kokkosp_push_profile_region(const char* name) {
  if (strcmp(name, "step") != 0) return;
  ++step;
  launch = 0;
}

void kokkosp_begin_parallel_for(const char* name, const uint32_t device, uint64_t* kernel) {
  (void)device, (void)kernel;
  if (!chosen() || step != atol(word("FLIP_STEP")) || strcmp(name, word("FLIP_KERNEL")) != 0 ||
      launch++ != atol(word("FLIP_LAUNCH")) || arena == NULL)
    return;
  const uint64_t at = (uint64_t)(atof(word("FLIP_SHARE")) * (double)arena_bytes) / 4 * 4 + 2;
  arena[at] ^= 0x20; /* of a float: a high bit of the mantissa */
  fprintf(stderr, "flip_bit: done\n");
}
