#include <trireme/base/check.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/token_file_writer.hpp>

#include "memory_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

using namespace trireme;
using fuzz::MemoryFile;

namespace {

std::vector<std::uint8_t> small_token_file() {
  const std::string path =
      (std::filesystem::temp_directory_path() / text("fuzz_token_file-", getpid(), ".h5")).string();
  data::TokenFileWriter writer(path, "bytes", 257);
  for (std::int32_t document = 1; document <= 8; ++document) {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(document), document);
    writer.append(ids, document % 3 > 0);
    writer.end_document(document);
  }
  writer.commit("fuzz");
  const io::InputFile file(path);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
  file.read(0, bytes.data(), bytes.size());
  unlink(path.c_str());
  return bytes;
}

/// Makes the checksums of header and structures right, so that what follows them is reached too.
/// The HDF5 structures themselves then are not read: their checksum is what stands between HDF5 and
/// damage.
void reseal(std::vector<std::uint8_t>& bytes, const MemoryFile& file) {
  if (bytes.size() < sizeof(data::TokenHeader)) return;
  data::TokenHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::memcpy(header.magic, data::token_magic, sizeof header.magic);
  data::seal(header);
  try {
    data::verify(header, std::ssize(bytes), "fuzz");
    file.replace(bytes.data(), bytes.size());
    header.rest_digest = data::digest_of_rest(io::InputFile(file.path()), header);
    data::seal(header);
  } catch (const Error&) {
  }
  std::memcpy(bytes.data(), &header, sizeof header);
}

void read_everything(const std::string& path) {
  const data::TokenFile file(path);
  const data::Samples samples(file, 3, 1);
  std::vector<std::int32_t> inputs(3);
  std::vector<std::int32_t> targets(3);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(samples.per_epoch(), 64); ++i) {
    samples.read(i, 1, inputs, targets);
    for (const auto id : targets)
      if (id != data::uncounted && (id < 0 || id >= file.vocabulary())) std::abort();
  }
  file.verify();
}

}  // namespace

/// The input is a list of changes to a small whole token file: 3 bytes each, a place and a value.
/// Mutating the file itself would mostly find that its magic is wrong. The first byte says whether
/// checksums are made right again, and by how much the file is cut. Anything but a correct read or
/// an Error is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  static const std::vector<std::uint8_t> whole = small_token_file();
  static const MemoryFile file;
  if (size < 1) return 0;
  std::vector<std::uint8_t> bytes = whole;
  for (std::size_t i = 1; i + 2 < size; i += 3) {
    const std::size_t place = input[i] | std::size_t{input[i + 1]} << 8;
    bytes[place % bytes.size()] = input[i + 2];
  }
  if ((input[0] & 6) == 6) bytes.resize(bytes.size() * (input[0] >> 3) / 32);
  if ((input[0] & 1) != 0) reseal(bytes, file);
  file.replace(bytes.data(), bytes.size());
  try {
    read_everything(file.path());
  } catch (const Error&) {
  }
  return 0;
}
