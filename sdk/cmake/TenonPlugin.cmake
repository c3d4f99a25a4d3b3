# tenon_add_plugin(KIND attention NAME flash [DEVICE cpu] SOURCES cpu.cc
#                  [AVX2 a.cc] [AVX_VNNI b.cc] [AVX512 c.cc] [AVX512_VNNI d.cc] [AVX512_BF16 e.cc] [AVX512_VBMI f.cc]
#                  [LIBRARIES ...])
# makes <plugins>/attention/flash.cpu.so. Sources named under an instruction set are compiled for it; the plugin chooses
# at run time by tenon_device.isa, so they must define nothing that another source could pick up instead of its own (no
# inline functions outside an anonymous namespace).
# tenon_add_kernels(target kernels.cc SCALAR [AVX2] [AVX_VNNI] [AVX512] [AVX512_VNNI] [AVX512_BF16] [AVX512_VBMI])
# compiles one source once for each instruction set, with TENON_ISA as its name in small letters (scalar, avx2,
# avx_vnni, ...): a namespace for what the source defines.
# tenon_add_objects(target [DEVICE cpu] SOURCES ... [AVX2 ...] [AVX_VNNI ...] [AVX512 ...] [AVX512_VNNI ...]
#                   [AVX512_BF16 ...] [AVX512_VBMI ...])
# compiles what several plugins share once, as a plugin's sources are; a plugin names $<TARGET_OBJECTS:target> among its
# own.
# DEVICE cuda: a project that has enabled CUDA and found CUDAToolkit; without it the plugin is left out. The library
# links the shared CUDA runtime, and the SDK's tenon/cuda/ headers are at hand.

# CMake 3.25 does not know that nvcc takes C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

set(TENON_PLUGIN_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/plugin.map)
set(TENON_PLUGIN_OUTPUT ${CMAKE_BINARY_DIR}/lib/tenon/plugins CACHE INTERNAL "Where plugins are built")

# Compiles sources of this directory for the instruction sets that they are named under.
function(tenon_isa_sources)
  cmake_parse_arguments(arg "" "" "AVX2;AVX_VNNI;AVX512;AVX512_VNNI;AVX512_BF16;AVX512_VBMI" ${ARGN})
  set(avx2 -mavx2 -mfma -mf16c -mbmi2)
  # GCC 12 takes its own AVX-512 headers for users of uninitialized values (GCC bug 105593).
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set_source_files_properties(${arg_AVX2} ${arg_AVX_VNNI} ${arg_AVX512} ${arg_AVX512_VNNI} ${arg_AVX512_BF16} ${arg_AVX512_VBMI}
    PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set_source_files_properties(${arg_AVX2} PROPERTIES COMPILE_OPTIONS "${avx2}")
  set_source_files_properties(${arg_AVX_VNNI} PROPERTIES COMPILE_OPTIONS "${avx2};-mavxvnni")
  set_source_files_properties(${arg_AVX512} PROPERTIES COMPILE_OPTIONS "${avx512}")
  set_source_files_properties(${arg_AVX512_VNNI} PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512vnni")
  set_source_files_properties(${arg_AVX512_BF16} PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512bf16")
  set_source_files_properties(${arg_AVX512_VBMI} PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512vbmi")
endfunction()

function(tenon_add_kernels target source)
  get_filename_component(name ${source} NAME_WE)
  get_filename_component(path ${source} ABSOLUTE)
  get_filename_component(folder ${path} DIRECTORY)
  foreach(isa IN LISTS ARGN)
    string(TOLOWER ${isa} namespace)
    set(generated ${CMAKE_CURRENT_BINARY_DIR}/${target}/${name}.${namespace}.cc)
    file(CONFIGURE OUTPUT ${generated} CONTENT "#define TENON_ISA ${namespace}\n#include \"${path}\"\n" @ONLY)
    tenon_isa_sources(${isa} ${generated})
    # -O3 would take twice as long to unroll what is there for old processors and as a reference.
    if(isa STREQUAL SCALAR)
      set_source_files_properties(${generated} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O2> SKIP_PRECOMPILE_HEADERS ON)
    endif()
    target_sources(${target} PRIVATE ${generated})
  endforeach()
  target_include_directories(${target} PRIVATE ${folder})
endfunction()

# The arguments of tenon_add_plugin and tenon_add_objects, as arg_*. Ends the caller where they ask for CUDA and there
# is no compiler.
macro(tenon_parse_sources)
  cmake_parse_arguments(arg "NO_INSTALL" "KIND;NAME;DEVICE;TARGET;OUTPUT" "SOURCES;AVX2;AVX_VNNI;AVX512;AVX512_VNNI;AVX512_BF16;AVX512_VBMI;LIBRARIES"
    ${ARGN})
  if(NOT arg_DEVICE)
    set(arg_DEVICE cpu)
  endif()
  if(arg_DEVICE STREQUAL cuda AND NOT CMAKE_CUDA_COMPILER)
    return()
  endif()
endmacro()

# Compiles a target's CUDA sources as those of plugins, and sets `targets` to their GPUs: sm_80\;sm_90a.
function(tenon_compile_cuda target targets)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-gnu-unique;--expt-relaxed-constexpr;-lineinfo>")
  set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Shared CUDA_VISIBILITY_PRESET hidden)
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^([0-9]+a?).*" "sm_\\1" OUTPUT_VARIABLE gpus)
  list(JOIN gpus "\\;" gpus)
  set(${targets} "${gpus}" PARENT_SCOPE)
endfunction()

# A library of this type (MODULE or OBJECT) of the caller's arg_SOURCES and those of arg_AVX2 and so on, compiled for a
# plugin of arg_DEVICE.
function(tenon_add_compiled target type)
  tenon_isa_sources(AVX2 ${arg_AVX2} AVX_VNNI ${arg_AVX_VNNI} AVX512 ${arg_AVX512} AVX512_VNNI ${arg_AVX512_VNNI} AVX512_BF16 ${arg_AVX512_BF16}
    AVX512_VBMI ${arg_AVX512_VBMI})
  add_library(${target} ${type} ${arg_SOURCES} ${arg_AVX2} ${arg_AVX_VNNI} ${arg_AVX512} ${arg_AVX512_VNNI} ${arg_AVX512_BF16}
    ${arg_AVX512_VBMI})
  # Contraction off: the same bits from every compiler; kernels ask for fused multiply-adds themselves.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  set(targets x86-64)
  if(arg_DEVICE STREQUAL cuda)
    tenon_compile_cuda(${target} targets)
    target_link_libraries(${target} PRIVATE CUDA::cudart)
  endif()
  target_compile_definitions(${target} PRIVATE TENON_PLUGIN_DEVICE="${arg_DEVICE}" "TENON_PLUGIN_TARGETS=\"${targets}\"")
  target_link_libraries(${target} PRIVATE tenon::sdk)
endfunction()

function(tenon_add_plugin)
  tenon_parse_sources(${ARGN})
  if(NOT arg_TARGET)
    set(arg_TARGET tenon_${arg_KIND}_${arg_NAME}_${arg_DEVICE})
  endif()
  if(NOT arg_OUTPUT)
    set(arg_OUTPUT ${TENON_PLUGIN_OUTPUT}/${arg_KIND})
  endif()
  tenon_add_compiled(${arg_TARGET} MODULE)
  set_target_properties(${arg_TARGET} PROPERTIES PREFIX "" OUTPUT_NAME ${arg_NAME}.${arg_DEVICE} SUFFIX .so
    LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT} BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN" LINK_DEPENDS ${TENON_PLUGIN_SCRIPT})
  if(arg_DEVICE STREQUAL cuda)
    set_target_properties(${arg_TARGET} PROPERTIES INSTALL_RPATH "$ORIGIN;${CUDAToolkit_LIBRARY_DIR}")
  endif()
  target_link_options(${arg_TARGET} PRIVATE -Wl,--version-script=${TENON_PLUGIN_SCRIPT})
  # Clang's sanitizers are in the program that opens the plugin.
  if(NOT (TENON_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang"))
    target_link_options(${arg_TARGET} PRIVATE -Wl,-z,defs)
  endif()
  target_link_libraries(${arg_TARGET} PRIVATE ${arg_LIBRARIES})
  if(NOT arg_NO_INSTALL)
    install(TARGETS ${arg_TARGET} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tenon/plugins/${arg_KIND})
  endif()
endfunction()

function(tenon_add_objects target)
  tenon_parse_sources(${ARGN})
  tenon_add_compiled(${target} OBJECT)
endfunction()
