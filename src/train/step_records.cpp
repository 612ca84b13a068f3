#include <trireme/train/step_records.hpp>

namespace trireme::train {

StepRecords::StepRecords(std::int64_t losses)
    : memory_("step records",
              kept * (aligned(losses * 8) + aligned(kernels::status_size * 8) + aligned(8))) {
  for (Record& record : records_) {
    record.losses = memory_.take<double>(losses);
    record.status = memory_.take<double>(kernels::status_size);
    record.scale_before = memory_.take<double>(1);
  }
}

}  // namespace trireme::train
