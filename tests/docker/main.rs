//! Steps in real containers: this program starts a docker daemon of its own, and ends it again.

mod commands;
mod daemon;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../it/executor/desk.rs"]
mod desk;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../processes/house.rs"]
mod house;
mod workers;

use libtest_mimic::{Arguments, Failed, Trial};

use daemon::daemon;

type Story = fn() -> Result<(), Failed>;

#[rustfmt::skip]
const STORIES: &[(&str, Story)] = &[
    ("a_script_runs_in_the_image_and_its_exit_code_is_the_steps", commands::exit_code),
    ("an_environment_arrives_byte_by_byte",                       commands::environment),
    ("an_output_is_readable_outside_whoever_wrote_it_inside",     commands::output),
    ("a_script_cannot_be_changed_from_inside",                    commands::read_only_script),
    ("a_script_may_name_who_reads_it",                            commands::reader),
    ("an_image_runs_its_own_command_where_it_says",               commands::own_command),
    ("words_of_a_command_are_never_options_of_docker",            commands::hostile_words),
    ("an_image_that_nobody_has_is_one_clear_sentence",            commands::missing_image),
    ("a_failure_of_docker_is_told_from_one_of_the_step",          commands::failures),
    ("a_signal_reaches_the_first_process",                        commands::terminated),
    ("a_container_outlives_a_killed_docker_but_not_the_cleanup",  commands::killed),
    ("a_cleanup_finds_nothing_to_do_without_complaint",           commands::cleaned_twice),
    ("what_a_former_life_left_is_removed",                        commands::leftovers),
    ("docker_is_offered_while_its_daemon_answers",                commands::offered),
    ("a_container_has_few_privileges",                            commands::confined),
    ("the_workers_arguments_win_over_the_confinement",            commands::unconfined),

    ("steps_in_containers_complete_and_fail_as_others_do",        workers::complete_and_fail),
    ("the_example_of_containers_runs",                            workers::example),
    ("a_step_is_not_running_while_its_image_is_pulled",           workers::pulled),
    ("a_cancel_ends_the_pull_of_an_image",                        workers::cancelled_pull),
    ("an_image_that_nobody_can_pull_fails_after_five_workers",    workers::exhausted),
    ("a_cancelled_container_is_gone_at_once",                     workers::cancelled),
    ("a_container_that_does_not_listen_is_gone_after_the_grace",  workers::deaf),
    ("a_cancel_in_any_moment_of_its_making_leaves_no_container",  workers::cancelled_early),
    ("a_container_past_its_timeout_is_gone",                      workers::timed_out),
    ("a_killed_worker_leaves_no_container",                       workers::killed_worker),
    ("a_worker_killed_in_any_moment_leaves_no_container",         workers::killed_early),
    ("a_killed_supervisor_leaves_no_container",                   workers::killed_supervisor),
    ("what_nobody_could_remove_the_next_life_removes",            workers::next_life),
    ("a_container_is_waited_for_by_a_worker_told_to_stop",        workers::drained),
    ("a_container_ends_with_a_worker_told_twice",                 workers::shut_down),
    ("a_worker_without_docker_says_so_and_is_not_asked_for_it",   workers::unmatched),
];

fn main() {
    let arguments = Arguments::from_args();
    let listing = arguments.list;
    if !listing {
        daemon::start();
    }
    let trials = STORIES
        .iter()
        .map(|(name, story)| Trial::test(*name, *story))
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        daemon().end();
    }
    conclusion.exit();
}
