#pragma once

#include <trireme/architecture/architecture.hpp>

#include <string>
#include <utility>
#include <vector>

namespace trireme::architecture {

/// Appends arrays of one place of the model under a common prefix.
class Section {
 public:
  Section(std::vector<ArraySpec>& arrays, std::string prefix, std::int64_t layer)
      : arrays_(arrays), prefix_(std::move(prefix)), layer_(layer) {}

  ArraySpec& matrix(const std::string& name, std::vector<std::int64_t> shape, int split_axis,
                    double deviation, bool follows_previous = false) {
    return arrays_.emplace_back(ArraySpec{prefix_ + name, std::move(shape), split_axis, layer_,
                                          Initialisation::normal, deviation, true,
                                          follows_previous});
  }
  void vector(const std::string& name, std::vector<std::int64_t> shape, int split_axis,
              Initialisation init, bool follows_previous = false) {
    arrays_.push_back(
        {prefix_ + name, std::move(shape), split_axis, layer_, init, 0, false, follows_previous});
  }

 private:
  std::vector<ArraySpec>& arrays_;
  std::string prefix_;
  std::int64_t layer_;
};

}  // namespace trireme::architecture
