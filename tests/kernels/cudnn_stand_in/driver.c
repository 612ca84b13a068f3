/* The functions of a CUDA driver that the library calls before it plans, for machines without one: kernels can be loaded,
   and every other call says that there is no device. Built as libcuda.so.1, only for test_plans.cpp. */

enum { success = 0, no_device = 100 };

int cuInit(unsigned flags) {
  (void)flags;
  return no_device;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return success;
}

#define GIVE(name)                 \
  int name(void** handle) {        \
    static char anything;          \
    *handle = &anything;           \
    return success;                \
  }
GIVE(cuLibraryLoadData)
GIVE(cuLibraryGetKernel)
GIVE(cuKernelGetFunction)
GIVE(cuModuleLoadData)
GIVE(cuModuleLoadDataEx)
GIVE(cuModuleGetFunction)

#define AGREE(name) \
  int name(void) { return success; }
AGREE(cuLibraryUnload)
AGREE(cuModuleUnload)
AGREE(cuKernelSetAttribute)
AGREE(cuFuncSetAttribute)

#define REFUSE(name) \
  int name(void) { return no_device; }
REFUSE(cuCtxGetCurrent)
REFUSE(cuCtxGetDevice)
REFUSE(cuCtxGetLimit)
REFUSE(cuCtxPopCurrent)
REFUSE(cuCtxPushCurrent)
REFUSE(cuDeviceGet)
REFUSE(cuDeviceGetAttribute)
REFUSE(cuDeviceGetCount)
REFUSE(cuDevicePrimaryCtxRelease)
REFUSE(cuDevicePrimaryCtxReset)
REFUSE(cuDevicePrimaryCtxRetain)
REFUSE(cuFuncGetAttribute)
REFUSE(cuGetErrorName)
REFUSE(cuGetErrorString)
REFUSE(cuKernelGetAttribute)
REFUSE(cuLaunchCooperativeKernel)
REFUSE(cuLaunchKernel)
REFUSE(cuLaunchKernelEx)
REFUSE(cuLibraryLoadFromFile)
REFUSE(cuLinkAddData)
REFUSE(cuLinkAddData_v2)
REFUSE(cuLinkAddFile_v2)
REFUSE(cuLinkComplete)
REFUSE(cuLinkCreate)
REFUSE(cuLinkCreate_v2)
REFUSE(cuLinkDestroy)
REFUSE(cuMemcpyDtoH_v2)
REFUSE(cuModuleGetGlobal_v2)
REFUSE(cuModuleLoadFatBinary)
REFUSE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSE(cuOccupancyMaxPotentialClusterSize)
REFUSE(cuStreamGetCtx)
REFUSE(cuStreamSynchronize)
REFUSE(cuTensorMapEncodeTiled)
