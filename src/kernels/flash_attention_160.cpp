#include <trireme/kernels/flash_instances.hpp>

namespace trireme::kernels {

TRIREME_FLASH_INSTANCES(160);

}  // namespace trireme::kernels
