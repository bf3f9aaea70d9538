# Which program runs at which size in which variant. Quick: every program at least once, every np and every variant with
# the programs that stress it, about five minutes on two cores. Full: programs x np in the default variant with full sizes,
# and the programs with three ranks in each other variant.
set(matrix_programs pingpong flood matching datatypes collectives reductions comms threads rma fetch_sum ring readonly
    remap forkexec compute put_notify)

# What must have moved, by program. Large transfers go by put or get, so a program that has none must say so.
set(expect_rma --expect puts,gets,atomics)
set(expect_fetch_sum --expect atomics)
set(expect_put_notify --expect puts)
# A registration cache that is not told of munmap keeps 64 registrations of this program at least.
set(expect_remap --expect sends,recvs --most mrs_live_max=100)
foreach(program pingpong flood matching datatypes collectives reductions comms threads ring readonly forkexec compute)
  set(expect_${program} --expect sends,recvs)
endforeach()
# A rank that computes for seconds while seven others send to it is worth a line to the user.
list(APPEND expect_compute --may-warn)
# mend reaches the own rank, so the crash of Open MPI 4.1.4 that rma avoids over other BTLs must not show.
set(arguments_rma self-swap)

function(quick_test program np variant)
  mend_mpi_test(${program} ${np} VARIANT ${variant} LABELS quick ARGS --quick ${arguments_${program}}
    OPTIONS ${expect_${program}} ${ARGN})
endfunction()

foreach(program IN LISTS matrix_programs)
  quick_test(${program} 2 default)
endforeach()
foreach(program pingpong flood matching collectives threads rma ring compute)
  quick_test(${program} 3 default)
endforeach()
foreach(program flood reductions comms rma fetch_sum remap)
  quick_test(${program} 4 default)
endforeach()
foreach(program flood collectives rma ring)
  quick_test(${program} 8 default)
endforeach()
foreach(variant leave_pinned_0 leave_pinned_1)
  foreach(program pingpong rma remap readonly)
    quick_test(${program} 2 ${variant})
  endforeach()
endforeach()
foreach(program pingpong matching)
  quick_test(${program} 2 no_inline)
endforeach()
foreach(program pingpong flood rma)
  quick_test(${program} 3 plain_device)
endforeach()
quick_test(flood 4 tiny_srq)
quick_test(threads 2 tiny_srq)
quick_test(rma 3 tiny_srq)
quick_test(pingpong 2 two_rails --striped)
quick_test(rma 2 two_rails)
# Fragments of derived datatypes that come out of order make Open MPI (4.1.4, 5.0.7) write behind its own structures: with three
# ranks this program waited for ever when their fragments were striped (plugin/mca/descriptors.h).
quick_test(datatypes 3 two_rails)

# What Open MPI takes for several hosts. Only then do windows keep their own counters in registered memory and reach them
# with atomics: with handles of another size than a multiple of 8 those were not aligned, and every one failed.
foreach(run "ring 2 2" "rma 2 2" "rma 4 2" "fetch_sum 2 2" "put_notify 2 2" "pingpong 2 2" "collectives 4 2" "comms 3 3"
        "datatypes 2 2")
  separate_arguments(run)
  list(POP_FRONT run program np count)
  mend_mpi_test(${program} ${np} SUFFIX .hosts${count} LABELS quick ARGS --quick ${arguments_${program}}
    OPTIONS ${expect_${program}} --hosts ${count})
endforeach()
foreach(program IN LISTS matrix_programs)
  set(np 4)
  if(program MATCHES "^(rma|fetch_sum)$") # ranks that wait for a lock poll it, which starves its holder on few cores
    set(np 2)
  endif()
  mend_mpi_test(${program} ${np} SUFFIX .hosts2 LABELS full TIMEOUT 400 ARGS ${arguments_${program}}
    OPTIONS ${expect_${program}} --hosts 2)
endforeach()

# The closing words: each variant of saying them, at two sizes.
foreach(word small burst large late allto0 ssend self none)
  set(options --expect sends,recvs)
  if(word MATCHES "self|none")
    set(options --idle)
  endif()
  foreach(np 2 4)
    mend_mpi_test(lastword ${np} SUFFIX .${word} LABELS quick ARGS ${word} OPTIONS ${options})
  endforeach()
  foreach(np 3 8)
    mend_mpi_test(lastword ${np} SUFFIX .${word} LABELS full ARGS ${word} OPTIONS ${options})
  endforeach()
endforeach()
mend_mpi_test(spawn 2 LABELS quick OPTIONS --spawns)
mend_mpi_test(spawn 3 LABELS full OPTIONS --spawns)
mend_mpi_test(big 2 LABELS full TIMEOUT 240)

# The variants change what one process does with its device, not how many it talks to: one size of job is enough for them.
foreach(program IN LISTS matrix_programs)
  foreach(np 2 3 4 8)
    mend_mpi_test(${program} ${np} LABELS full TIMEOUT 400 ARGS ${arguments_${program}} OPTIONS ${expect_${program}})
  endforeach()
  foreach(variant IN LISTS mend_variants)
    if(NOT variant STREQUAL "default")
      mend_mpi_test(${program} 3 VARIANT ${variant} LABELS full TIMEOUT 120 ARGS --quick ${arguments_${program}}
        OPTIONS ${expect_${program}})
    endif()
  endforeach()
endforeach()

add_test(NAME mpi.runner COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/test_runner.py
  ${PROJECT_BINARY_DIR})
set_tests_properties(mpi.runner PROPERTIES LABELS "mpi;quick" TIMEOUT 240 RESOURCE_LOCK mpi PROCESSORS 2)

# The programs again under fire. Quick: what hurts most, each schedule at least once. Full: every program, short under a
# dense schedule and whole under the standing one; and one run with a thousand recoveries.
function(fire_test name)
  cmake_parse_arguments(arg "" "PROGRAM;NP;SCHEDULE;LEAST;SEED;LABELS;TIMEOUT" "ARGS;OPTIONS" ${ARGN})
  foreach(default "LEAST 3" "SEED 1" "LABELS quick" "TIMEOUT 90")
    separate_arguments(default)
    list(GET default 0 key)
    list(GET default 1 value)
    if(NOT DEFINED arg_${key})
      set(arg_${key} ${value})
    endif()
  endforeach()
  add_test(NAME mpi.fire.${name} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/fire.py
    --build ${PROJECT_BINARY_DIR} --program ${arg_PROGRAM} --np ${arg_NP} --schedule ${arg_SCHEDULE}
    --least ${arg_LEAST} --seed ${arg_SEED} --timeout ${arg_TIMEOUT} ${arg_OPTIONS} -- ${arg_ARGS})
  math(EXPR limit "${arg_TIMEOUT} + 60")
  set_tests_properties(mpi.fire.${name} PROPERTIES LABELS "mpi;${arg_LABELS}" TIMEOUT ${limit} RESOURCE_LOCK mpi
    PROCESSORS 2 SKIP_RETURN_CODE 77)
endfunction()

foreach(run "ring 2 storm" "ring 3 both" "ring 2 handshake" "pingpong 2 lost_acks" "flood 4 storm" "matching 2 onesided"
        "collectives 4 storm" "threads 2 storm" "rma 3 storm" "put_notify 3 onesided" "put_notify 2 lost_acks"
        "fetch_sum 8 storm" "ring 2 first"
        "ring 2 lost_control" "ring 2 false_alarm")
  separate_arguments(run)
  list(GET run 0 program)
  list(GET run 1 np)
  list(GET run 2 schedule)
  fire_test(${program}.np${np}.${schedule} PROGRAM ${program} NP ${np} SCHEDULE ${schedule}
    ARGS --quick ${arguments_${program}})
endforeach()
foreach(run "rma 2 storm" "fetch_sum 2 storm" "put_notify 2 onesided")
  separate_arguments(run)
  list(POP_FRONT run program np schedule)
  fire_test(${program}.hosts2.np${np}.${schedule} PROGRAM ${program} NP ${np} SCHEDULE ${schedule} OPTIONS --hosts 2
    ARGS --quick ${arguments_${program}})
endforeach()
foreach(program IN LISTS matrix_programs)
  fire_test(${program}.np4.storm.full PROGRAM ${program} NP 4 SCHEDULE storm SEED 4 LABELS full
    ARGS --quick ${arguments_${program}})
  if(NOT program STREQUAL "forkexec") # over in half a second
    fire_test(${program}.np2.standing.full PROGRAM ${program} NP 2 SCHEDULE standing LABELS full TIMEOUT 400
      ARGS ${arguments_${program}})
  endif()
endforeach()
# Finalize while the last message is still to be saved: it is replayed, but the connection may end before it counts as
# recovered.
foreach(word small burst late allto0)
  fire_test(lastword.${word} PROGRAM lastword NP 2 SCHEDULE first LEAST 0 ARGS ${word})
endforeach()
fire_test(thousand.full PROGRAM steady NP 4 SCHEDULE storm LEAST 1000 LABELS full TIMEOUT 150 ARGS --seconds 60)
fire_test(needs_faults PROGRAM ring NP 2 SCHEDULE storm OPTIONS --no-faults ARGS --quick)
set_tests_properties(mpi.fire.needs_faults PROPERTIES
  PASS_REGULAR_EXPRESSION "fire FAILED: the device log shows no fault.*fire FAILED: 0 recoveries, want 3")

# Links that go down for longer than the device retries; without faults the same test must fail.
foreach(np 2 4)
  add_test(NAME mpi.flap.np${np} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/flap.py
    ${PROJECT_BINARY_DIR} --np ${np})
endforeach()
# The port's addresses move in its GID table meanwhile.
add_test(NAME mpi.flap.gids COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/flap.py
  ${PROJECT_BINARY_DIR} --np 2 --gids)
add_test(NAME mpi.flap.needs_faults COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/flap.py
  ${PROJECT_BINARY_DIR} --no-faults)
set_tests_properties(mpi.flap.needs_faults PROPERTIES
  PASS_REGULAR_EXPRESSION "flap FAILED: the injector never struck.*flap FAILED: rank 0 never had to recover")
set_tests_properties(mpi.flap.np2 mpi.flap.np4 mpi.flap.gids mpi.flap.needs_faults PROPERTIES
  LABELS "mpi;quick" TIMEOUT 120 RESOURCE_LOCK mpi PROCESSORS 2)

# Jobs that cannot go on end soon, say why and leave nothing; ranks that are silent are not taken for dead.
function(script_test name script)
  add_test(NAME mpi.${name} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${PROJECT_BINARY_DIR}
    ${ARGN})
  set_tests_properties(mpi.${name} PROPERTIES LABELS "mpi;quick" TIMEOUT 120 RESOURCE_LOCK mpi PROCESSORS 2)
endfunction()
script_test(ending.outage ending.py outage --np 3)
script_test(ending.outage.messages ending.py outage --messages)
script_test(ending.forever ending.py forever)
script_test(ending.unhealable ending.py unhealable --np 3)
script_test(ending.killed ending.py killed --np 3)
script_test(memory_hooks.first memory_hooks.py first)
script_test(memory_hooks.aside memory_hooks.py aside)
set_tests_properties(mpi.memory_hooks.aside PROPERTIES SKIP_RETURN_CODE 77)
script_test(silence.stopped silence.py stopped)
script_test(silence.computing silence.py computing)
script_test(silence.forking silence.py forking)
if(mend_mpi_survives)
  foreach(mode killed late cut listen device)
    script_test(survivors.${mode} survivors.py ${mode})
    set_tests_properties(mpi.survivors.${mode} PROPERTIES TIMEOUT 300) # a job that hangs shows its stacks
  endforeach()
  foreach(mode cut listen device)
    script_test(survivors.${mode}.needs_faults survivors.py ${mode} --no-faults)
    set_tests_properties(mpi.survivors.${mode}.needs_faults PROPERTIES
      PASS_REGULAR_EXPRESSION "nobody was lost.*survivors FAILED: ")
  endforeach()
endif()
script_test(ending.needs_faults ending.py outage --no-faults)
script_test(silence.needs_faults silence.py stopped --no-faults)
set_tests_properties(mpi.ending.needs_faults PROPERTIES
  PASS_REGULAR_EXPRESSION "ending FAILED: the job ended with exit status 0.*ending FAILED: the injector never struck")
set_tests_properties(mpi.silence.needs_faults PROPERTIES
  PASS_REGULAR_EXPRESSION "silence FAILED: nobody asked the device of the stopped rank")

foreach(theme Parameters Devices Resources Neighbours)
  string(TOLOWER ${theme} name)
  add_test(NAME mpi.badinput.${name}
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/badinput/badinput.py ${PROJECT_BINARY_DIR} ${theme})
  set_tests_properties(mpi.badinput.${name} PROPERTIES LABELS "mpi;quick" TIMEOUT 300 RESOURCE_LOCK mpi PROCESSORS 2)
endforeach()

# Figures that repeat from run to run have limits; timings are measured and printed, and only fail if something breaks.
add_test(NAME mpi.bench.instructions COMMAND ${Python3_EXECUTABLE} -B
  ${CMAKE_CURRENT_SOURCE_DIR}/bench/instructions.py --build ${PROJECT_BINARY_DIR} --check 1:400,16:340)
add_test(NAME mpi.bench.memory COMMAND ${Python3_EXECUTABLE} -B
  ${CMAKE_CURRENT_SOURCE_DIR}/bench/peer_memory.py --build ${PROJECT_BINARY_DIR} --np 64 --check 24)
add_test(NAME mpi.bench.timings COMMAND ${Python3_EXECUTABLE} -B
  ${CMAKE_CURRENT_SOURCE_DIR}/bench/bench.py --build ${PROJECT_BINARY_DIR} --quick
  --json ${PROJECT_BINARY_DIR}/bench.json)
set_tests_properties(mpi.bench.instructions mpi.bench.memory mpi.bench.timings PROPERTIES
  LABELS "mpi;bench;quick" TIMEOUT 300 RUN_SERIAL TRUE SKIP_RETURN_CODE 77)

add_test(NAME mpi.osu COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/osu.py ${PROJECT_BINARY_DIR})
add_test(NAME mpi.sanitized.full COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/sanitized.py
  ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} --all)
set_tests_properties(mpi.osu PROPERTIES LABELS "mpi;quick" TIMEOUT 1200 RESOURCE_LOCK mpi PROCESSORS 2 SKIP_RETURN_CODE 77)
set_tests_properties(mpi.sanitized.full PROPERTIES LABELS "mpi;full" TIMEOUT 1800 RESOURCE_LOCK mpi PROCESSORS 2)

# Each rank uses the NICs that mend-info promised: by NUMA node, evenly where ranks share them.
script_test(places.own places.py own)
script_test(places.shared places.py shared)
script_test(places.spread places.py spread)
script_test(places.needs_places places.py own --no-places)
set_tests_properties(mpi.places.needs_places PROPERTIES PASS_REGULAR_EXPRESSION "places FAILED: rank .: promised")

# With Open MPI 5.0, in a Debian of its own that is made the first time (./configure-scripts/debian-chroot); there, mpirun
# is 5.0's and these tests are not wanted again.
if(NOT TARGET mpi_survivors)
  function(ompi5_test what timeout label)
    add_test(NAME mpi.ompi5.${what} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/ompi5.py ${what}
      --other ${PROJECT_BINARY_DIR})
    set_tests_properties(mpi.ompi5.${what} PROPERTIES LABELS "mpi;${label}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77 PROCESSORS 2)
  endfunction()
  ompi5_test(root 3000 quick)
  ompi5_test(build 1800 quick)
  ompi5_test(smoke 900 quick)
  ompi5_test(full 14400 full)
  set_tests_properties(mpi.ompi5.root PROPERTIES FIXTURES_SETUP ompi5_root)
  set_tests_properties(mpi.ompi5.build PROPERTIES FIXTURES_SETUP ompi5_build FIXTURES_REQUIRED ompi5_root)
  set_tests_properties(mpi.ompi5.smoke PROPERTIES FIXTURES_REQUIRED ompi5_build RESOURCE_LOCK mpi)
  set_tests_properties(mpi.ompi5.full PROPERTIES FIXTURES_REQUIRED ompi5_root RUN_SERIAL TRUE)
  # The newest Open MPI that Debian has: made, built and tested in one, because each time all of it may be new.
  add_test(NAME mpi.ompi6.smoke COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/ompi5.py smoke --suite sid)
  set_tests_properties(mpi.ompi6.smoke PROPERTIES LABELS "mpi;full" TIMEOUT 3600 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE)
endif()
