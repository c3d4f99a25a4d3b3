
# And for CUDA, where there is a compiler: build/lib/tenon/plugins/@KIND@/@NAME@.cuda.so.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES native)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  tenon_add_plugin(KIND @KIND@ NAME @NAME@ DEVICE cuda SOURCES @CUDA_SOURCE@)
endif()
