// Reads Megatron-LM's pair of files, and converts ids to 32 bits.
#include <trireme/data/megatron_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/token_header.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace trireme::data {
namespace {

constexpr char magic[] = "MMIDIDX\0";  // 9 bytes with the terminating zero
static_assert(sizeof magic == 9);
constexpr std::int64_t header_bytes = 9 + 8 + 1 + 8 + 8;

template <class T>
T get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Bytes of a token of this type; 0 for types that cannot hold ids.
std::int64_t bytes_of_type(int type) {
  switch (type) {
    case 1:
    case 2:
      return 1;
    case 3:
    case 8:
      return 2;
    case 4:
      return 4;
    case 5:
      return 8;
    default:
      return 0;
  }
}

}  // namespace

MegatronFile::MegatronFile(const std::string& prefix, std::int64_t vocabulary)
    : index_(prefix + ".idx"), bin_(prefix + ".bin"), vocabulary_(vocabulary) {
  read_header();
  check(bin_.size() > 0 && bin_.size() % token_bytes_ == 0, bin_.path(), ": has ", bin_.size(),
        " bytes, expected a multiple of ", token_bytes_, ", the token size in ", path());
  tokens_ = bin_.size() / token_bytes_;
  std::int32_t last_size = 0;
  index_.read(pointers_begin_ - 4, &last_size, 4);
  const std::int64_t last_begin = begin_of(sequences_ - 1);
  check(begin_of(0) == 0 && last_size >= 0 && last_begin == tokens_ - last_size, path(),
        ": its sequences end at token ", last_begin, " + ", last_size, ", but ", bin_.path(),
        " has ", tokens_,
        " tokens; one of the two files is truncated or they belong to different texts");
  std::array<std::int64_t, 2> ends{};
  index_.read(documents_begin_, &ends[0], 8);
  index_.read(index_.size() - 8, &ends[1], 8);
  check(ends[0] == 0 && ends[1] == sequences_, path(), ": its documents span sequences [", ends[0],
        ", ", ends[1], "), expected [0, ", sequences_, ")");
}

void MegatronFile::read_header() {
  std::array<char, header_bytes> h{};
  index_.read(0, h.data(), static_cast<std::size_t>(std::min(header_bytes, index_.size())));
  check_usage(std::memcmp(h.data(), magic, sizeof magic) == 0, path(),
              ": is not the index of a Megatron-LM token file (MMIDIDX)");
  const auto version = get<std::uint64_t>(&h[9]);
  check_usage(version == 1, path(), ": is of version ", version, "; this program reads version 1");
  type_ = get<std::uint8_t>(&h[17]);
  token_bytes_ = bytes_of_type(type_);
  check_usage(token_bytes_ > 0, path(), ": its tokens are of type ", type_,
              ", expected an integer type (1, 2, 3, 4, 5 or 8)");
  const auto sequences = get<std::uint64_t>(&h[18]);
  const auto documents = get<std::uint64_t>(&h[26]);
  const auto size = static_cast<std::uint64_t>(index_.size());
  const bool possible = sequences >= 1 && documents >= 2 && sequences <= size / 12 &&
                        documents <= size / 8;  // prevents overflow below
  const std::uint64_t needed = possible ? header_bytes + sequences * 12 + documents * 8 : 0;
  check_usage(!possible || size != needed + sequences, path(),
              ": has a mode per sequence (multimodal data), which is not supported");
  check(possible && size == needed, path(), ": its header gives ", sequences, " sequences and ",
        documents, " document entries, which do not match its ", size,
        " bytes; the file is damaged");
  sequences_ = static_cast<std::int64_t>(sequences);
  document_entries_ = static_cast<std::int64_t>(documents);
  sizes_begin_ = header_bytes;
  pointers_begin_ = sizes_begin_ + 4 * sequences_;
  documents_begin_ = pointers_begin_ + 8 * sequences_;
}

std::int64_t MegatronFile::begin_of(std::int64_t sequence) const {
  if (sequence == sequences_) return tokens_;
  std::int64_t pointer = 0;
  index_.read(pointers_begin_ + 8 * sequence, &pointer, 8);
  return token_at(sequence, pointer);
}

std::int64_t MegatronFile::token_at(std::int64_t sequence, std::int64_t pointer) const {
  check(pointer >= 0 && pointer <= bin_.size() && pointer % token_bytes_ == 0, path(),
        ": sequence ", sequence, " begins at byte ", pointer, " of ", bin_.size(),
        " bytes; the file is damaged");
  return pointer / token_bytes_;
}

std::string MegatronFile::fingerprint() const {
  constexpr std::int64_t end_bytes = 1 << 20;
  constexpr std::int64_t block_bytes = 4096;
  constexpr std::int64_t blocks = 64;
  Checksum sum;
  const auto add = [&sum](const io::InputFile& file, std::int64_t begin, std::int64_t bytes) {
    file.for_each_block(begin, std::min(begin + bytes, file.size()),
                        [&](const std::byte* data, std::size_t size) { sum.update(data, size); });
  };
  for (const std::int64_t bytes : {index_.size(), bin_.size()}) sum.update(&bytes, sizeof bytes);
  add(index_, 0, end_bytes);
  add(index_, std::max<std::int64_t>(0, index_.size() - end_bytes), end_bytes);
  const std::int64_t last = std::max<std::int64_t>(0, bin_.size() - block_bytes);
  for (std::int64_t i = 0; i < blocks; ++i) add(bin_, last / (blocks - 1) * i, block_bytes);
  return sum.digest().hex();
}

template <class Stored>
void MegatronFile::read_as(std::int64_t first, std::span<std::int32_t> out) const {
  const std::int64_t limit = vocabulary_ > 0 ? vocabulary_ : vocabulary_limit;
  std::array<Stored, numbers_at_a_time> stored;
  for (std::size_t at = 0; at < out.size(); at += numbers_at_a_time) {
    const std::size_t count = std::min(numbers_at_a_time, out.size() - at);
    const std::int64_t token = first + static_cast<std::int64_t>(at);
    bin_.read(token * token_bytes_, stored.data(), count * sizeof(Stored));
    std::uint64_t largest = 0;  // negative ids are large as unsigned values
    for (std::size_t i = 0; i < count; ++i) {
      const auto id = static_cast<std::int64_t>(stored[i]);
      largest = std::max(largest, static_cast<std::uint64_t>(id));
      out[at + i] = static_cast<std::int32_t>(id);
    }
    check(largest < static_cast<std::uint64_t>(limit), bin_.path(), ": token id ",
          static_cast<std::int64_t>(largest), " among tokens ", token, " to ",
          token + static_cast<std::int64_t>(count) - 1, " is outside the vocabulary of ", limit,
          "; set [model] vocabulary to the number of ids of the tokenizer that made the file");
  }
}

void MegatronFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  const std::int64_t count = std::ssize(out);
  check(first >= 0 && count <= tokens_ && first <= tokens_ - count, bin_.path(), ": has ", tokens_,
        " tokens, but ", count, " from token ", first, " were requested");
  switch (type_) {
    case 1:
      return read_as<std::uint8_t>(first, out);
    case 2:
      return read_as<std::int8_t>(first, out);
    case 3:
      return read_as<std::int16_t>(first, out);
    case 4:
      return read_as<std::int32_t>(first, out);
    case 5:
      return read_as<std::int64_t>(first, out);
    default:
      return read_as<std::uint16_t>(first, out);
  }
}

void MegatronFile::read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const {
  const std::int64_t count = std::ssize(out);
  check(first >= 0 && count <= document_entries_ && first <= document_entries_ - count, path(),
        ": has ", document_entries_, " document offsets, but ", count, " from ", first,
        " were requested");
  index_.read(documents_begin_ + first * 8, out.data(), out.size_bytes());
  std::int64_t before = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    check(out[i] >= before && out[i] <= sequences_, path(), ": document ",
          first + static_cast<std::int64_t>(i), " begins with sequence ", out[i],
          ", outside the file or before the previous document's; the file is damaged");
    before = out[i];
  }
  // Reads all beginnings at once if documents have at most 4 sequences on average.
  const std::int64_t base = out.empty() ? 0 : out.front();
  const std::int64_t span = std::min(before + 1, sequences_) - base;
  std::vector<std::int64_t> pointers;
  if (span > 0 && span <= 4 * count) {
    pointers.resize(static_cast<std::size_t>(span));
    index_.read(pointers_begin_ + 8 * base, pointers.data(), pointers.size() * 8);
  }
  for (std::int64_t& sequence : out) {
    const std::int64_t i = sequence - base;
    sequence = i < std::ssize(pointers) ? token_at(sequence, pointers[static_cast<std::size_t>(i)])
                                        : begin_of(sequence);
  }
}

void MegatronFile::verify() const {
  std::vector<std::int32_t> sizes(numbers_at_a_time);
  std::vector<std::int64_t> pointers(numbers_at_a_time);
  std::int64_t expected = 0;
  for (std::int64_t first = 0; first < sequences_; first += std::ssize(sizes)) {
    const auto count = static_cast<std::size_t>(std::min(std::ssize(sizes), sequences_ - first));
    index_.read(sizes_begin_ + 4 * first, sizes.data(), 4 * count);
    index_.read(pointers_begin_ + 8 * first, pointers.data(), 8 * count);
    for (std::size_t i = 0; i < count; ++i) {
      check(sizes[i] >= 0 && pointers[i] == expected, path(), ": sequence ",
            first + static_cast<std::int64_t>(i), " has ", sizes[i], " tokens from byte ",
            pointers[i], ", expected byte ", expected, "; the file is damaged");
      expected += sizes[i] * token_bytes_;
    }
  }
  for (std::int64_t first = 0; first < document_entries_; first += std::ssize(pointers))
    read_document_offsets(first, std::span(pointers).first(static_cast<std::size_t>(
                                     std::min(std::ssize(pointers), document_entries_ - first))));
  std::vector<std::int32_t> ids(numbers_at_a_time);
  for (std::int64_t first = 0; first < tokens_; first += std::ssize(ids))
    read(first, std::span(ids).first(
                    static_cast<std::size_t>(std::min(std::ssize(ids), tokens_ - first))));
}

}  // namespace trireme::data
