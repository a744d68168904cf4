"""idem store check and idem migrate on real servers: good, away, refused, too weak."""

import os
import re
import stat

import pytest
import server_stores

from test_cli_support import (FAILURE, OK, REFUSED, USAGE, everything, fill, good, idem,
                              own_directory, refused)
from waiting import wait_until

COMMON = ["backend", "server", "version", "clock difference", "durability", "can lose"]


@pytest.fixture(name="kind", params=server_stores.KINDS)
def _kind(request):
    made = server_stores.get(request.param)
    yield made
    made.steady()


def check(*words):
    """The object that is printed, also when the verdict is bad, and how it ran."""
    ran = idem("store", "check", *words, "--json")
    for secret in server_stores.SECRETS:
        assert secret not in ran.out + ran.err
    return ran.json(), ran


# ---- store check

def test_a_good_store_on_one_screen(kind):
    store = kind.store()
    ran = good("store", "check", store.url())
    lines = [re.split(r"\s{2,}", line, maxsplit=1) for line in ran.out.splitlines()]
    names = [line[0] for line in lines]
    assert names[:3] == ["store", "reachable", "self-test"] and names[-1] == "verdict"
    assert [name for name in names if name in COMMON] == COMMON, names
    assert len(lines) <= 24 and all(len(line) == 2 and line[1] for line in lines), lines
    told = dict(lines)
    assert re.match(r"yes: a read takes \d+\.\d\d ms", told["reachable"])
    assert "127.0.0.1" in told["server"] and str(kind.server.port) in told["server"]
    assert re.search(r"\d+\.\d+", told["version"])
    assert "always" in told["durability"] and told["verdict"] == "good"
    for secret in server_stores.SECRETS:
        assert secret not in ran.out


def test_a_good_store_for_programs(kind):
    told, ran = check(kind.store().url())
    assert ran.status == OK and ran.err == ""
    assert (told["verdict"], told["reason"], told["self_test"]) == ("good", None, "passed")
    assert told["reachable"] and told["read_us"] > 0
    assert list(told["facts"])[:len(COMMON)] == COMMON


def test_the_clock_of_the_same_host_differs_by_little(kind):
    told, _ = check(kind.store().url())
    number, unit = re.match(r"([+-]?[\d.]+) ?(us|ms|s)", told["facts"]["clock difference"]).groups()
    assert abs(float(number)) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit] < 5


def test_what_asks_for_less_is_told_what_it_can_lose(kind):
    told, ran = check(kind.store().url(sync="off"))
    assert ran.status == OK and "off" in told["facts"]["durability"]
    assert len(told["facts"]["can lose"]) > 20


def test_a_server_that_is_away(kind):
    store = kind.store()
    kind.server.end()
    told, ran = check(store.url(timeout="2s"))
    assert ran.status == FAILURE and told["verdict"] == "unavailable" and not told["reachable"]
    assert "127.0.0.1" in told["reason"] and told["reason"] in ran.err


def test_a_server_that_hangs(kind):
    store = kind.store()
    kind.server.stop()
    told, ran = check(store.url(timeout="300ms"))
    assert ran.status == FAILURE and told["verdict"] == "unavailable" and not told["reachable"]


def test_a_wrong_password(kind):
    """The server is there: that is told, and is something else than a server that is away."""
    told, ran = check(kind.wrong_url())
    assert ran.status == FAILURE and (told["verdict"], told["reachable"]) == ("unusable", True)
    assert told["read_us"] is None and told["self_test"] is None and told["facts"] == {}
    assert re.search("password|WRONGPASS|denied|authenticat", told["reason"], re.I), told["reason"]
    screen = refused(FAILURE, "store", "check", kind.wrong_url()).out
    assert re.search("^reachable +yes, but it cannot be used$", screen, re.M), screen
    assert re.search("^verdict +unusable$", screen, re.M), screen


def test_a_file_with_the_password_that_cannot_be_read():
    """Root may read it, and the user of the workers may not."""
    kind = server_stores.get("postgres")
    plain = re.sub(":[^:@]*@", "@", kind.wrong_url())
    told, ran = check(plain)
    assert ran.status == FAILURE and "or name by passfile= a file" in told["reason"]
    with own_directory() as place:
        file = place / "pass"
        file.write_text("*:*:*:*:right\n")
        file.chmod(0o600)
        url = f"{plain}?passfile={file}"
        told, _ = check(url)
        assert told["store"] == url and "no tables" in told["reason"], "it has logged in"
        if os.geteuid() == 0:
            ran = refused(FAILURE, "store", "check", url, user="nobody")
        else:
            ran = refused(FAILURE, "store", "check", url + ".none")
        assert "the user of this process may read the file of passfile=" in ran.err


SOCKETS = {"redis": "redis+unix:{server.socket}?password=" + server_stores.WRONG,
           "postgres": "postgresql:///nothing?host={server.folder}&port={server.port}",
           "mariadb": "mariadb://nobody:x@no.such.host.invalid/nothing?socket={server.socket}"}


def test_a_socket_that_is_there_and_one_that_is_not(kind, request):
    url = SOCKETS[request.node.callspec.params["kind"]].format(server=kind.server)
    told, ran = check(url)
    assert ran.status == FAILURE and (told["verdict"], told["reachable"]) == ("unusable", True)
    kind.server.end()
    told, ran = check(url)
    assert ran.status == FAILURE and (told["verdict"], told["reachable"]) == ("unavailable", False)


TRIGGERS = {
    "postgres": """
        CREATE FUNCTION {name}.shortened() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN NEW.body := NULL; RETURN NEW; END $$;
        CREATE TRIGGER shortened BEFORE UPDATE ON {name}.idempotency_keys
            FOR EACH ROW EXECUTE FUNCTION {name}.shortened()""",
    "mariadb": """
        CREATE TRIGGER {name}.shortened BEFORE UPDATE ON {name}.idempotency_keys
            FOR EACH ROW SET NEW.body = ''"""}


@pytest.mark.parametrize("name", list(TRIGGERS))
def test_a_store_that_keeps_something_else(name):
    """The self-test finds out, whatever the reason is: here it is somebody's trigger."""
    made = server_stores.get(name)
    store = made.store()
    made.run(TRIGGERS[name].format(name=store.name))
    told, ran = check(store.url())
    assert ran.status == REFUSED and (told["verdict"], told["reachable"]) == ("refused", True)
    assert told["self_test"] == "failed" and "self-test" in told["reason"]
    screen = refused(REFUSED, "store", "check", store.url()).out
    assert re.search("^self-test +failed:", screen, re.M), screen


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
def test_tables_that_are_not_there(name):
    told, ran = check(server_stores.get(name).store(migrate=False).url())
    assert ran.status == FAILURE and (told["verdict"], told["reachable"]) == ("unusable", True)
    assert "idem migrate" in told["reason"]


def test_one_host_of_several_is_enough():
    sentinel = server_stores.get("sentinel")
    url, = sentinel.server.urls().values()
    url = url.replace("redis+sentinel://", "redis+sentinel://127.0.0.1:1,")
    told, _ = check(url.rpartition("/")[0] + "/another")
    assert (told["verdict"], told["reachable"]) == ("unusable", True)
    assert "another" in told["reason"]


def test_a_server_that_has_no_room_for_a_new_key(kind):
    """Whatever the server says of its bounds: the self-test's own key was refused."""
    store = kind.store()
    with kind.full(store):
        told, ran = check(store.url())
        assert (told["verdict"], told["self_test"], ran.status) == ("full", "passed", OK)
        assert told["facts"]["claims"].startswith("refused: ")
        screen = good("store", "check", store.url()).out
        assert re.search(r"^verdict +full$", screen, re.M)
        assert re.search(r"^self-test +passed: as far as a full store", screen, re.M)
    told, _ = check(store.url())
    assert told["verdict"] == "good" and told["facts"]["claims"].startswith("taken")


def test_settings_too_weak_for_what_is_asked(kind):
    """Refused, and all the same it is shown what they are and what they can lose."""
    store = kind.store()
    with kind.weakened() as setting:
        def seen():
            told, ran = check(store.url())
            return (told, ran) if told["verdict"] == "refused" else None

        told, ran = wait_until(seen, "the settings to be refused")
        assert ran.status == REFUSED and setting.search(told["reason"]), told["reason"]
        assert "sync=off" in told["reason"], "it says what to do"
        assert told["reachable"] and setting.search(told["facts"]["durability"])
        assert len(told["facts"]["can lose"]) > 20
        told, ran = check(store.url(sync="off"))
        assert ran.status == OK and told["verdict"] == "good"
    told, ran = check(store.url())
    assert ran.status == OK


# ---- migrate

@pytest.fixture(name="sql", params=["postgres", "mariadb"])
def _sql(request):
    made = server_stores.get(request.param)
    yield made
    made.steady()


def migrate(*words):
    told = good("migrate", *words, "--json").json()
    return told["from"], told["to"], told["changed"]


def test_tables_are_made_and_removed(sql):
    store = sql.store(migrate=False)
    ran = refused(FAILURE, "list", "--store", store.url())
    assert "idem migrate" in ran.err
    before, latest, changed = migrate(store.url())
    assert before == 0 and latest > 0 and changed
    assert good("list", "--json", "--store", store.url()).json()["records"] == []
    assert migrate(store.url()) == (latest, latest, False)
    assert "already" in good("migrate", store.url()).out
    refused(USAGE, "migrate", store.url(), "--to", 0)
    assert migrate(store.url()) == (latest, latest, False), "that did nothing"
    assert migrate(store.url(), "--to", 0, "--remove-records") == (latest, 0, True)
    assert migrate(store.url(), "--to", 0, "--remove-records") == (0, 0, False)
    refused(FAILURE, "list", "--store", store.url())


FOREIGN = ("idempotency_keys", "idempotency_audit", "idempotency_meta")


@pytest.mark.parametrize("table", FOREIGN)
def test_a_table_that_is_not_idems_is_left(sql, table):
    store = sql.store(migrate=False)
    sql.run(f"CREATE {sql.FOLDER} {store.name}")
    sql.run(f"CREATE TABLE {store.name}.{table} (x int)")
    sql.run(f"INSERT INTO {store.name}.{table} VALUES (7)")
    for words in ([], ["--to", 1], ["--to", 0, "--remove-records"]):
        ran = refused(FAILURE, "migrate", store.url(), *words)
        assert re.search("not idem's|no idempotency_meta|not as idem makes", ran.err), ran.err
        assert "another" in ran.err, "it says what to do"
    assert sql.run(f"SELECT x FROM {store.name}.{table}").split()[-1] == "7"


def test_tables_of_a_newer_idem(sql):
    store = sql.store()
    sql.run(f"UPDATE {store.name}.idempotency_meta SET schema_version = 9")
    for words in ([], ["--to", 1], ["--to", 0, "--remove-records"]):
        ran = refused(FAILURE, "migrate", store.url(), *words)
        assert "version 9" in ran.err and "newer" in ran.err, ran.err


@pytest.mark.parametrize("there", ["nothing", "folder", "tables"])
def test_a_user_who_may_not(sql, there):
    store = sql.store(migrate=there == "tables")
    if there == "folder":
        sql.run(f"CREATE {sql.FOLDER} {store.name}")
    url = sql.poor_url(store)
    lines = [["migrate", url], ["migrate", url, "--to", 0, "--remove-records"]]
    for line in lines if there == "tables" else lines[:1]:
        ran = refused(FAILURE, *line)
        assert re.search("may not migrate|refuses: .*denied", ran.err), ran.err
        assert server_stores.WRONG not in ran.err


def test_a_wrong_password_for_migrate(sql):
    ran = refused(FAILURE, "migrate", sql.wrong_url())
    assert re.search("password|denied", ran.err) and server_stores.WRONG not in ran.err


def test_a_version_that_nobody_knows(sql):
    store = sql.store()
    ran = refused(USAGE, "migrate", store.url(), "--to", 9999)
    assert "9999" in ran.err


# ---- what was dropped or changed by hand

def test_functions_that_were_dropped_or_changed():
    """The version fits all the same; every one is noticed, and made again."""
    kind = server_stores.get("postgres")
    store = kind.store()
    fill(store.url(), {"op": "claim", "key": "k"}, {"op": "complete", "key": "k", "body": "x"})
    listed = kind.run(f"SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = "
                      f"'{store.name}'::regnamespace ORDER BY 1").split("\n")
    names = [line.strip() for line in listed if "idempotency_" in line]
    assert len(names) > 20
    harms = [f"DROP FUNCTION {name} CASCADE" for name in names]
    harms += [f"ALTER FUNCTION {names[-1]} SECURITY INVOKER",
              f"CREATE OR REPLACE FUNCTION {store.name}.idempotency_us(at timestamptz) RETURNS "
              "bigint LANGUAGE sql STABLE AS 'SELECT 7::bigint'"]
    for harm in harms:
        kind.run(harm)
        told, ran = check(store.url())
        assert ran.status == FAILURE and told["verdict"] == "unusable", harm
        assert "idem migrate" in told["reason"], harm
        mended = good("migrate", store.url(), "--json").json()
        assert mended["mended"] and not mended["changed"], harm
        assert check(store.url())[1].status == OK, harm
    assert not good("migrate", store.url(), "--json").json()["mended"]
    assert "made anew" not in good("migrate", store.url()).out
    assert fill(store.url(), {"op": "claim", "key": "k", "owner": 2}) == ["completed"]


def test_a_dump_that_was_restored_is_the_same_store():
    """What the functions are is told by their text, which a dump keeps."""
    kind = server_stores.get("postgres")
    store = kind.store()
    fill(store.url(), {"op": "claim", "key": "k"}, {"op": "complete", "key": "k", "body": "x"})
    where = ["-h", "127.0.0.1", "-p", str(kind.server.port), "-U", "idem"]
    dump = os.path.join(kind.server.folder, "dump.sql")
    kind.server.run_tool(["pg_dump", *where, "-n", store.name, "-f", dump, "idem"])
    kind.run("CREATE DATABASE restored")
    kind.server.run_tool(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *where, "-d", "restored",
                          "-f", dump])
    url = store.url().replace("/idem?", "/restored?")
    assert check(url)[1].status == OK
    assert not good("migrate", url, "--json").json()["mended"]
    assert everything(url) == everything(store.url())


def test_a_function_that_is_not_idems():
    """By its name it could be called in the place of one that is."""
    kind = server_stores.get("postgres")
    store = kind.store()
    made = f"{store.name}.idempotency_us(at timestamp)"
    kind.run(f"CREATE FUNCTION {made} RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'")
    assert "idem migrate" in refused(FAILURE, "store", "check", store.url()).err
    ran = refused(FAILURE, "migrate", store.url())
    assert "idempotency_us(timestamp without time zone) is not idem's: drop it" in ran.err
    kind.run(f"DROP FUNCTION {made}")
    assert check(store.url())[1].status == OK


READABLE = {"SCHEMA": "idempotency_records", "DATABASE": "idempotency_readable"}
SWEEP = {"SCHEMA": "DROP INDEX {}.idempotency_keys_sweep",
         "DATABASE": "DROP INDEX sweep ON {}.idempotency_keys"}


def test_a_view_or_an_index_that_was_dropped_is_made_again(sql):
    store = sql.store()
    for harm in (f"DROP VIEW {store.name}.{READABLE[sql.FOLDER]}",
                 SWEEP[sql.FOLDER].format(store.name)):
        sql.run(harm)
        assert "made anew" in good("migrate", store.url()).out, harm
        told = good("migrate", store.url(), "--json").json()
        assert not told["mended"] and not told["changed"]


@pytest.mark.parametrize("table, column", [("keys", "flags"), ("keys", "fence"),
                                           ("audit", "why"), ("meta", "salt")])
def test_a_column_that_was_dropped_cannot_be_made_again(sql, table, column):
    """To send the person in a circle between the two commands would help nobody."""
    store = sql.store()
    cascade = " CASCADE" if sql.FOLDER == "SCHEMA" else ""
    sql.run(f"ALTER TABLE {store.name}.idempotency_{table} DROP COLUMN {column}{cascade}")
    if table != "audit":
        assert check(store.url())[1].status == FAILURE
    ran = refused(FAILURE, "migrate", store.url())
    assert "estore" in ran.err and "backup" in ran.err and "idem migrate URL" not in ran.err


def test_what_needs_no_tables():
    redis = server_stores.get("redis")
    for url in (redis.store(migrate=False).url(), "memory:"):
        assert "needs none" in good("migrate", url).out
        assert migrate(url) == (0, 0, False)


def test_migrate_without_a_store():
    refused(USAGE, "migrate")
    refused(USAGE, "migrate", "memory:", "--store", "memory:")


def test_a_server_that_is_away_cannot_be_migrated(sql):
    store = sql.store()
    sql.server.end()
    ran = refused(FAILURE, "migrate", store.url(timeout="1s"))
    assert "127.0.0.1" in ran.err
    ran = refused(FAILURE, "migrate", store.url().replace("127.0.0.1", "no.such.host.invalid"))
    assert "no.such.host.invalid" in ran.err
    for secret in server_stores.SECRETS:
        assert secret not in ran.err


# ---- the other commands, on servers

def test_records_are_looked_at_and_settled_on_every_store(kind, tmp_path):
    """A store is a store: the commands do not ask what keeps it. The URL comes from a file."""
    store = kind.store()
    file = tmp_path / "url"
    file.write_text(store.url() + "\n")
    os.chmod(file, stat.S_IRUSR | stat.S_IWUSR)
    fill(store.url(), {"op": "claim", "key": "lost"}, {"op": "abandon", "key": "lost"},
         {"op": "claim", "key": "done"}, {"op": "complete", "key": "done", "body": "x"})
    env = {"IDEM_STORE": f"@{file}"}
    records = good("list", "--json", env=env).json()["records"]
    assert sorted(record["key"] for record in records) == ["done", "lost"]
    ident = good("show", "--key", "lost", "--json", env=env).json()["id"]
    good("resolve", ident[:12], "--completed", "--status", "201", "--why", "seen", env=env)
    assert good("show", ident[:12], "--json", env=env).json()["state"] == "completed"
    good("forget", "--key", "done", "--why", "test", env=env)
    trail = good("list", "--audit", "--json", env=env).json()["audit"]
    assert [entry["what"] for entry in trail] == ["resolve", "forget"]
    assert good("sweep", "--json", env=env).json()["removed"] >= 0


def test_a_list_has_no_more_than_its_limit(kind):
    """Nor does going on behind it lose any, in the order that the store has."""
    store = kind.store()
    count = 60
    fill(store.url(), *({"op": "claim", "key": f"k{number}"} for number in range(count)))
    for limit in (1, 7, count - 1, count):
        after, seen, more = [], [], True
        while more:
            page = good("list", "--json", "--limit", limit, *after, "--store", store.url()).json()
            assert len(page["records"]) <= limit
            seen += [record["key"] for record in page["records"]]
            after, more = ["--after", page["last"]], page["more"]
        assert sorted(seen) == sorted(f"k{number}" for number in range(count))


# ---- damaged records

SPOILT = {"postgres": ("fingerprint = '\\x01'", "headers = '\\x01'"),
          "mariadb": ("status = 7", "headers = x'01'")}


def spoil(kind, store, idents):
    """Turns the records into something that is none, each in another way."""
    for number, ident in enumerate(idents):
        if isinstance(kind, server_stores.RedisKind):
            ask = kind.server.ask
            ask("EVAL", "redis.call('SET', redis.call('KEYS', ARGV[1])[1], 'junk')", "0",
                f"{store.name}*{ident}")
        else:
            name = "postgres" if isinstance(kind, server_stores.PostgresKind) else "mariadb"
            where = "id = decode('{0}', 'hex')" if name == "postgres" else "id = x'{0}'"
            kind.run(f"UPDATE {store.name}.idempotency_keys SET {SPOILT[name][number % 2]} "
                     f"WHERE {where.format(ident)}")


def with_damage(kind, count, damaged):
    """A store of completed records, and the ids of those that were spoilt."""
    store = kind.store()
    fill(store.url(), *({"op": op, "key": f"k{number}", "status": 201, "body": "x"}
                        for number in range(count) for op in ("claim", "complete")))
    idents = sorted(everything(store.url()))[::count // damaged][:damaged]
    spoil(kind, store, idents)
    return store, idents


def test_a_list_tells_of_damaged_records(kind):
    store, idents = with_damage(kind, 12, 3)
    ran = refused(FAILURE, "list", "--store", store.url())
    assert "3 damaged records were left out: " in ran.err
    assert len(ran.out.splitlines()) == 1 + 9
    assert all(ident[:16] in ran.err and ident[:16] not in ran.out for ident in idents)
    ran = refused(FAILURE, "list", "--json", "--store", store.url())
    assert ran.json()["damaged"] == idents and len(ran.json()["records"]) == 9
    for ident in idents:
        ran = refused(FAILURE, "show", ident[:16], "--store", store.url())
        assert "is damaged; this removes it" in ran.err
        good("forget", ident[:16], "--force", "--why", "damaged", "--store", store.url())
    assert good("list", "--json", "--store", store.url()).json()["damaged"] == []


def test_each_damaged_record_is_told_on_one_page(kind):
    store, idents = with_damage(kind, 30, 6)
    for limit in (1, 4):
        after, damaged, seen, more = [], [], [], True
        while more:
            ran = idem("list", "--json", "--limit", limit, *after, "--store", store.url())
            page = ran.json()
            assert ran.status == (FAILURE if page["damaged"] else OK), ran.err
            damaged += page["damaged"]
            seen += [record["id"] for record in page["records"]]
            after, more = ["--after", page["last"]], page["more"]
        assert sorted(damaged) == idents and len(seen) == len(set(seen)) == 24


def test_a_copy_names_the_damaged_records(kind, tmp_path):
    store, idents = with_damage(kind, 12, 12)
    target = f"lmdb:{tmp_path}/target?size=64m"
    ran = idem("store", "copy", store.url(), target, "--json")
    assert ran.status == FAILURE and ran.json()["damaged"] == 12
    assert ran.json()["damaged_from"] == idents and ran.json()["damaged_to"] == []
    assert "12 damaged records were not copied" in ran.err and ", and 2 more." in ran.err
    assert all((ident[:16] in ran.err) == (ident in idents[:10]) for ident in idents)
    for secret in server_stores.SECRETS:
        assert secret not in ran.err



def test_a_copy_names_what_is_damaged_at_the_target(kind, tmp_path):
    source = f"lmdb:{tmp_path}/source?size=64m"
    fill(source, {"op": "claim", "key": "k"}, {"op": "complete", "key": "k", "body": "x"})
    target = kind.store()
    good("store", "copy", source, target.url())
    ident, = everything(target.url())
    spoil(kind, target, [ident])
    ran = idem("store", "copy", source, target.url(), "--json")
    assert ran.status == FAILURE and ran.json()["damaged_to"] == [ident]
    assert f"1 damaged record was left at the target and not copied over: {ident[:16]}" in ran.err
    assert f"--store '{target.url().partition('://')[0]}" in ran.err, "the hint names its store"
