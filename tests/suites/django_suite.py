"""Django's own tests, which its source archive contains: the apps that talk to a database, by mysqlclient."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import packages
from model import Result, settled
from python_suites import HERE, PASSWORD, TEST_TIMEOUT_S, USER, PythonSuite, rows
from servers import Failure, Stage, program_path

# Below Django's tests/. Left out: what asks no database, or the same of it everywhere (admin, forms, templates, views, ...).
APPS = """aggregation aggregation_regress annotations async backends basic bulk_create cache composite_pk constraints contenttypes_tests
custom_columns custom_lookups custom_managers custom_methods custom_migration_operations custom_pk datatypes dates datetimes db_functions
db_typecasts db_utils defer defer_regress delete delete_regress distinct_on_fields empty expressions expressions_case expressions_window
extra_regress field_defaults field_subclassing filtered_relation fixtures fixtures_regress force_insert_update foreign_object from_db_value
generic_relations generic_relations_regress get_earliest_or_latest get_object_or_404 get_or_create indexes inspectdb introspection
known_related_objects lookup m2m_and_m2o m2m_intermediary m2m_multiple m2m_recursive m2m_regress m2m_signals m2m_through m2m_through_regress
m2o_recursive managers_regress many_to_many many_to_one many_to_one_null max_lengths migrate_signals migration_test_data_persistence migrations
model_fields model_inheritance model_inheritance_regress model_indexes multiple_database mutually_referential nested_foreign_keys null_fk
null_fk_ordering null_queries one_to_one or_lookups order_with_respect_to ordering pagination prefetch_related properties
proxy_model_inheritance proxy_models queries queryset_pickle raw_query reserved_names reverse_lookup save_delete_hooks schema select_for_update
select_related select_related_onetoone select_related_regress serializers sessions_tests signals string_lookup swappable_models test_utils
timezones transaction_hooks transactions unmanaged_models update update_only_fields validation xor_lookups""".split()


@dataclass
class Django(PythonSuite):
    def prepare(self) -> None:
        # What mysqlclient is built with.
        packages.install_debian(["libmariadb-dev", "pkg-config"], Path("/usr/include/mariadb/mysql.h"))
        super().prepare()

    def server_settings(self) -> str:
        return "character-set-server=utf8mb4\ninnodb_flush_log_at_trx_commit=2\nmax_allowed_packet=64M"

    def seed_sql(self) -> str:
        time_zones = packages.check([program_path("mariadb-tzinfo-to-sql"), "/usr/share/zoneinfo"], "the time zones")
        return f"{super().seed_sql()}\nUSE mysql;\n{time_zones}"

    def lay_out(self, stage: Stage) -> tuple[Path, list[str]]:
        directory = stage.directory / "suite"
        directory.mkdir(exist_ok=True)
        server = {"ENGINE": "django.db.backends.mysql", "USER": USER, "PASSWORD": PASSWORD, "HOST": stage.address, "PORT": stage.port}
        databases = {"default": {**server, "NAME": "django"}, "other": {**server, "NAME": "django_other"}}
        settings = {
            "DATABASES": databases,
            "SECRET_KEY": "suites",
            "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
            "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
            "USE_TZ": False,
            "TEST_RUNNER": "django_outcomes.Runner",
        }
        (directory / "suites_settings.py").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
        return directory, ["--settings=suites_settings", "--parallel=1", "--noinput", "--verbosity=0"]

    def tests(self, stage: Stage) -> list[str]:
        directory, arguments = self.lay_out(stage)
        (directory / "wanted.txt").unlink(missing_ok=True)
        told = self.runtests(directory, [*arguments, *APPS])
        found = [row[0] for row in rows(directory / "collected.jsonl")]
        if not found:
            raise Failure(f"Django's runtests.py has found no test:\n{told[-3000:]}")
        # A module that can't be imported is a test that fails with another name each time.
        return [name for name in found if not name.startswith("unittest.loader")]

    def run(self, stage: Stage, tests: list[str]) -> list[Result]:
        directory, arguments = self.lay_out(stage)
        (directory / "wanted.txt").write_text("\n".join(tests))
        apps = sorted({test.partition(".")[0] for test in tests})
        told = self.runtests(directory, [*arguments, *apps])
        (directory / "runtests.log").write_text(told)
        return settled(rows(directory / "outcomes.jsonl"), told)

    def runtests(self, directory: Path, arguments: list[str]) -> str:
        program = self.source() / "tests/runtests.py"
        env = {
            **os.environ,
            "PYTHONPATH": f"{directory}:{HERE}",
            "WEIR_SUITES_OUTCOMES": str(directory),
            "WEIR_SUITES_TIMEOUT": str(TEST_TIMEOUT_S),
        }
        done = subprocess.run(
            [str(self.python), "-B", str(program), *arguments], cwd=directory, env=env, capture_output=True, text=True, errors="replace"
        )
        return done.stdout + done.stderr
