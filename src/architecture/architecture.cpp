#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/gpt.hpp>
#include <trireme/architecture/llama.hpp>
#include <trireme/base/check.hpp>

namespace trireme::architecture {

std::int64_t ArraySpec::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

std::int64_t Architecture::parameters() const {
  std::int64_t n = 0;
  for (const ArraySpec& array : arrays) n += array.elements();
  return n;
}

std::int64_t Architecture::matmul_parameters() const {
  std::int64_t n = model.vocabulary * model.hidden;  // logits, tied or not
  for (const ArraySpec& array : arrays)
    if (array.layer >= 0 && array.layer < model.layers && array.decay) n += array.elements();
  return n;
}

double Architecture::model_flops_per_token() const {
  const auto attention =
      static_cast<double>(model.layers) * static_cast<double>(model.hidden * model.sequence);
  return 6.0 * static_cast<double>(matmul_parameters()) + 6.0 * attention;
}

Architecture describe(const deck::ModelConfig& model) {
  check(model.vocabulary > 0, "the vocabulary is not resolved");
  switch (model.family) {
    case Family::gpt:
      return {model, gpt_arrays(model)};
    case Family::llama:
      return {model, llama_arrays(model)};
  }
  return {};
}

}  // namespace trireme::architecture
