#include <trireme/base/check.hpp>
#include <trireme/data/tokenizer.hpp>

namespace trireme::data {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return 257; }
  std::int32_t end_of_document() const override { return 256; }

  void encode(std::string_view bytes, std::vector<std::int32_t>& out) const override {
    const std::size_t begin = out.size();
    out.resize(begin + bytes.size());
    std::int32_t* ids = out.data() + begin;
    for (std::size_t i = 0; i < bytes.size(); ++i) ids[i] = static_cast<unsigned char>(bytes[i]);
  }

  void decode(std::span<const std::int32_t> ids, std::string& out) const override {
    for (const std::int32_t id : ids) {
      check(id >= 0 && id <= 256, "token id ", id, " lies outside the byte tokenizer's 257 ids");
      if (id < 256) out += static_cast<char>(id);
    }
  }

 private:
  std::string name_ = "bytes";
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  check_usage(name == "bytes", "tokenizer '", name, "' is not known; expected \"bytes\"");
  return std::make_unique<ByteTokenizer>();
}

}  // namespace trireme::data
