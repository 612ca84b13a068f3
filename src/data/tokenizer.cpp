// Chooses the tokenizer for a file, and implements the tokenizer "bytes".
#include <trireme/data/tokenizer.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/json_node.hpp>
#include <trireme/data/tokenizer_json.hpp>
#include <trireme/io/input_file.hpp>

#include <filesystem>

namespace trireme::data {
namespace {

class ByteEncoder final : public Encoder {
 public:
  void feed(std::string_view bytes, std::vector<std::int32_t>& out) override {
    const std::size_t begin = out.size();
    out.resize(begin + bytes.size());
    std::int32_t* ids = out.data() + begin;
    for (std::size_t i = 0; i < bytes.size(); ++i) ids[i] = static_cast<unsigned char>(bytes[i]);
  }
  void finish(std::vector<std::int32_t>&) override {}
};

class ByteTokenizer final : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return 257; }
  std::int32_t end_of_document() const override { return 256; }
  std::unique_ptr<Encoder> encoder(const EncodeOptions&) const override {
    return std::make_unique<ByteEncoder>();
  }

  void decode(std::span<const std::int32_t> ids, std::string& out) const override {
    for (const std::int32_t id : ids) {
      check(id >= 0 && id <= 256, "token id ", id, " is outside the byte tokenizer's 257 ids");
      if (id < 256) out += static_cast<char>(id);
    }
  }

 private:
  std::string name_ = "bytes";
};

/// Decodes ids whose texts do not depend on each other.
class IdDecoder final : public Decoder {
 public:
  explicit IdDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void feed(std::span<const std::int32_t> ids, std::string& out) override {
    tokenizer_.decode(ids, out);
  }
  void finish(std::string&) override {}

 private:
  const Tokenizer& tokenizer_;
};

/// Path of the tokenizer.json at a path; "" for a folder that has a vocab.json instead.
std::string json_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  check_usage(fs::exists(path, error), "tokenizer '", path,
              "': no such file or folder; expected \"bytes\", a tokenizer.json, or a folder with ",
              "a tokenizer.json or with vocab.json and merges.txt");
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path + "/tokenizer.json")) return path + "/tokenizer.json";
  check_usage(
      fs::exists(path + "/vocab.json"), path,
      ": has neither a tokenizer.json nor a vocab.json; give a folder with one of these files");
  return "";
}

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path,
                                               const std::string& end_of_document) {
  return parse_tokenizer(io::read_text_file(path, file_limit_bytes), path, end_of_document);
}

}  // namespace

std::unique_ptr<Decoder> Tokenizer::decoder() const {
  return std::make_unique<IdDecoder>(*this);
}

std::int64_t Tokenizer::text_bytes(std::int32_t id) const {
  std::string written;
  decode({&id, 1}, written);
  return std::ssize(written);
}

void Tokenizer::decode_after(std::span<const std::int32_t> before,
                             std::span<const std::int32_t> ids, std::string& out) const {
  std::vector<std::int32_t> all(before.begin(), before.end());
  std::string first;
  decode(all, first);
  all.insert(all.end(), ids.begin(), ids.end());
  std::string whole;
  decode(all, whole);
  if (whole.starts_with(first))
    out += whole.substr(first.size());
  else  // the new ids complete a character
    decode(ids, out);
}

std::int32_t Tokenizer::special_token(std::string_view name) const {
  for (const auto& [known, id] : special_tokens())
    if (known == name) return id;
  return -1;
}

void Tokenizer::encode(std::string_view document, std::vector<std::int32_t>& out,
                       const EncodeOptions& options) const {
  const auto whole = encoder(options);
  whole->feed(document, out);
  whole->finish(out);
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source) {
  if (source.path == "bytes") {
    check_usage(source.end_of_document.empty(),
                "the tokenizer \"bytes\" has its own end-of-document ", "token; remove '",
                source.end_of_document, "'");
    return std::make_unique<ByteTokenizer>();
  }
  const std::string json = json_of(source.path);
  if (!json.empty()) return read_tokenizer_json(json, source.end_of_document);
  return read_bpe_folder(source.path, source.end_of_document);
}

std::map<std::string, std::string> tokenizer_files(const std::string& path) {
  std::map<std::string, std::string> files;
  if (path == "bytes") return files;
  const auto add = [&files](const std::string& name, const std::string& from) {
    files[name] = io::read_text_file(from, file_limit_bytes);
  };
  if (const std::string json = json_of(path); !json.empty()) {
    add("tokenizer.json", json);
  } else {
    for (const char* name : {"vocab.json", "merges.txt"}) add(name, path + "/" + name);
  }
  return files;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path) {
  return make_tokenizer(TokenizerSource{path, {}});
}

}  // namespace trireme::data
