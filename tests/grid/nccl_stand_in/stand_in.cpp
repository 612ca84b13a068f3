// Libraries with NCCL's symbols that do nothing, to test the loader. STAND_IN_VERSION sets the
// version; STAND_IN_OLD leaves out symbols that NCCL 2.4 did not have. NCCL's header is not
// included, because it is not installed everywhere.

#define STAND_IN(name)    \
  extern "C" int name() { \
    return 0;             \
  }

extern "C" int ncclGetVersion(int* version) {
  *version = STAND_IN_VERSION;
  return 0;
}
extern "C" const char* ncclGetErrorString(int) {
  return "a word of the stand-in";
}
STAND_IN(ncclGetUniqueId)
STAND_IN(ncclCommInitRank)
STAND_IN(ncclCommDestroy)
STAND_IN(ncclCommGetAsyncError)
STAND_IN(ncclGroupStart)
STAND_IN(ncclGroupEnd)
STAND_IN(ncclAllGather)
STAND_IN(ncclBroadcast)
#if !defined(STAND_IN_OLD)
STAND_IN(ncclGetLastError)
STAND_IN(ncclSend)
STAND_IN(ncclRecv)
#endif
