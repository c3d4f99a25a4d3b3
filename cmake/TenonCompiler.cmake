# Warnings and sanitizers, as interface targets so that nothing is global. GCC 12's -Wrestrict misfires on "text" + std::string
# (GCC bug 105651).
add_library(tenon_warnings INTERFACE)
set(host_warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual -Wundef
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict> $<$<BOOL:${TENON_WERROR}>:-Werror>)
set(cuda_warnings -Xcompiler=-Wall,-Wextra,-Wno-restrict -Wno-deprecated-gpu-targets $<$<BOOL:${TENON_WERROR}>:-Werror=all-warnings>)
target_compile_options(tenon_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:${host_warnings}>" "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings}>")

if(TENON_SANITIZE)
  # GCC 12 takes the sanitizers' own code for reads of what was never written.
  target_compile_options(tenon_warnings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  set(sanitize -fsanitize=${TENON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitize}>")
  add_link_options(-fsanitize=${TENON_SANITIZE})
endif()
