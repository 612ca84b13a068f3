// Calls that the tensor-core attention kernels support, and the parameters of a launch.
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/flash_backward_tile.hpp>
#include <trireme/kernels/group_kernels.hpp>

#include <algorithm>

namespace trireme::kernels {

bool rows_of_16_bytes(std::initializer_list<const void*> arrays,
                      std::initializer_list<std::int64_t> strides) {
  return std::all_of(arrays.begin(), arrays.end(),
                     [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }) &&
         std::all_of(strides.begin(), strides.end(), [](std::int64_t n) { return n % 8 == 0; });
}

namespace {

/// Whether a call meets the requirements of all tensor-core kernels, apart from the head size.
bool fits(const AttentionShape& s, std::initializer_list<const void*> arrays,
          std::initializer_list<std::int64_t> strides) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (s.has_biases() || s.has_key_ranges()) return false;
  if (s.scale <= 0.0 || s.cap > 0.0 || s.batch * s.sequence * s.heads == 0) return false;
  if (s.batch * s.heads * s.sequence > most || s.sequence > most / 256) return false;
  return rows_of_16_bytes(arrays, strides) &&
         std::all_of(strides.begin(), strides.end(), [](auto n) { return n < most / 64; });
}

}  // namespace

bool flash_takes(const AttentionShape& s, std::initializer_list<const void*> arrays,
                 std::initializer_list<std::int64_t> strides) {
  return has_flash_kernel(s.head_size) && fits(s, arrays, strides);
}

bool group_backward_takes(const AttentionShape& s, std::initializer_list<const void*> arrays,
                          std::initializer_list<std::int64_t> strides) {
  return !s.has_documents() && has_group_backward(s.head_size) && fits(s, arrays, strides);
}

bool group_forward_takes(const AttentionShape& s, std::initializer_list<const void*> arrays,
                         std::initializer_list<std::int64_t> strides) {
  return !s.has_documents() && has_group_forward(s.head_size) && fits(s, arrays, strides);
}

namespace {

FlashShape flash_shape(const AttentionShape& s, std::int64_t qkv_stride) {
  FlashShape f;
  f.batch = static_cast<int>(s.batch);
  f.sequence = static_cast<int>(s.sequence);
  f.heads = static_cast<int>(s.heads);
  f.key_value_heads = static_cast<int>(s.key_value_heads);
  f.group = static_cast<int>(s.group);
  f.heads_before = static_cast<int>(s.heads_before);
  if (s.window > 0) f.back = static_cast<int>(s.window) - 1;
  if (!s.causal) f.ahead = FlashShape::unbounded;
  f.scale = static_cast<float>(s.scale);
  f.qkv_stride = qkv_stride;
  f.positions = s.positions.data();
  return f;
}

int within(std::int64_t planes, std::int64_t section) {
  return static_cast<int>(std::clamp<std::int64_t>(section, 1, planes));
}

}  // namespace

/// A section is the group of heads in flight, whose keys and values stay in the cache. Sections
/// have nearly equal sizes: a last section of few heads would occupy few multiprocessors.
FlashShape flash_forward_shape(const AttentionShape& s, std::int64_t qkv_stride,
                               std::int64_t room_bytes) {
  FlashShape f = flash_shape(s, qkv_stride);
  const std::int64_t bytes = 4 * s.sequence * s.head_size;  // keys and values of a head
  const std::int64_t planes = s.batch * s.heads;
  const std::int64_t most = within(planes, room_bytes * s.group / bytes);
  const std::int64_t sections = (planes + most - 1) / most;
  f.section = static_cast<int>((planes + sections - 1) / sections);
  return f;
}

/// A section is the group of heads of keys and values in flight. A block of keys may wait for the
/// previous block of its head at each block of queries, but not if it begins a step later. With a
/// causal mask, about 2 processors / (blocks + 1) blocks begin per step: the section has a quarter
/// more heads than that, so that each head begins at most one of them.
FlashShape flash_backward_shape(const AttentionShape& s, std::int64_t qkv_stride, int processors,
                                int block_keys) {
  FlashShape f = flash_shape(s, qkv_stride);
  const std::int64_t blocks = (s.sequence + block_keys - 1) / block_keys;
  f.section = within(s.batch * s.key_value_heads, (5 * processors / 2 + blocks) / (blocks + 1));
  return f;
}

FlashDropout flash_dropout(const AttentionShape& s, const AttentionDropout& dropout) {
  FlashDropout f;
  f.key = dropout.key;
  f.threshold = static_cast<std::uint32_t>(dropout.rate * 4294967296.0);
  f.kept = static_cast<float>(1.0 / (1.0 - dropout.rate));
  f.first_sample = dropout.first_sample;
  f.first_head = dropout.first_head;
  f.all_heads = dropout.all_heads == 0 ? s.heads : dropout.all_heads;
  return f;
}

}  // namespace trireme::kernels
