//! Classifies a name directly before `(`: syntax, a built-in function, or unknown.
//!
//! Sources: "Built-in Functions" of the MariaDB Knowledge Base and "Built-In Function and Operator Reference"
//! of the MySQL manual. A name that some release does not have would be a stored function there, so every
//! list says since which release its names are the server's own. A name that is in no list is taken for a
//! stored or loadable function, which may do anything.

use crate::dialect::{Dialect, Family};
use crate::table::NameTable;

/// The meaning of `name (`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Not a call: a reserved word, or a type.
    Syntax,
    /// A function without any effect, whose result does not depend on the server that runs it.
    Pure,
    /// The same, but only with nothing between name and `(`, or spaces if the session has IGNORE_SPACE.
    PureTight,
    /// POINT, which is pure with exactly two arguments.
    Point,
    /// Constructors of geometries, pure with at least one argument.
    Geometries,
    /// JSON_TABLE, which is pure if it has COLUMNS.
    JsonTable,
    /// CONNECTION_ID()
    ConnectionId,
    /// FOUND_ROWS()
    FoundRows,
    /// ROW_COUNT()
    RowCount,
    /// LAST_INSERT_ID() or LAST_INSERT_ID(expr)
    LastInsertId,
    /// GET_LOCK
    Lock,
    /// RELEASE_LOCK, RELEASE_ALL_LOCKS
    Unlock,
    /// NEXTVAL, LASTVAL, SETVAL
    Sequence,
    /// A function of the server's own about this server, its files or its replication: no effect on the
    /// session, but not the same on every server.
    Local,
    /// A stored or loadable function, or nothing at all.
    Unknown,
}

struct List {
    call: Call,
    /// First release of MariaDB with these names, as in [`crate::Server::release`].
    mariadb: u16,
    /// The same for MySQL.
    mysql: u16,
    names: &'static str,
}

const NEVER: u16 = u16::MAX;
/// The oldest releases that a server of which nothing is known may be: of MariaDB and of MySQL.
const OLDEST: (u16, u16) = (1006, 800);
/// The oldest releases that are told apart.
const ALWAYS: u16 = 0;

const LISTS: &[List] = &[
    List {
        call: Call::Syntax,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "all and as between binary by case cross decimal distinct distinctrow div double else except \
            exists float for from group having ignore in inner intersect interval is join key like \
            limit natural not on or order outer over partition regexp rlike select set straight_join then \
            sql_big_result sql_calc_found_rows sql_small_result high_priority union unique use using values varbinary varchar when where with xor",
    },
    List { call: Call::Syntax, mariadb: ALWAYS, mysql: ALWAYS, names: "index force character" },
    // Reserved in MySQL only; MariaDB would call a stored function of that name.
    List { call: Call::Syntax, mariadb: NEVER, mysql: 800, names: "lateral of grouping system window" },
    // Not reserved, but neither server lets an unquoted call of a stored function have such a name.
    List {
        call: Call::Syntax,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "char nchar datetime signed unsigned any some",
    },
    List {
        call: Call::PureTight,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "adddate bit_and bit_or bit_xor cast count curdate curtime date_add date_sub extract \
            group_concat max mid min now position session_user std stddev stddev_pop stddev_samp subdate \
            substr substring sum sysdate system_user trim variance var_pop var_samp json_arrayagg \
            json_objectagg",
    },
    List {
        call: Call::PureTight,
        mariadb: ALWAYS,
        mysql: 800,
        names: "cume_dist dense_rank first_value lag lead nth_value ntile percent_rank rank row_number",
    },
    List {
        call: Call::PureTight,
        mariadb: 1006,
        mysql: NEVER,
        names: "median percentile_cont percentile_disc trim_oracle",
    },
    // Arithmetic and comparison.
    List {
        call: Call::Pure,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "abs acos asin atan atan2 avg ceil ceiling conv cos cot crc32 degrees exp floor ln log log10 \
            log2 mod pi pow power radians rand round sign sin sqrt tan truncate \
            coalesce greatest if ifnull isnull least nullif row strcmp field elt find_in_set make_set \
            export_set default name_const bit_count",
    },
    // Text.
    List {
        call: Call::Pure,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "ascii bin bit_length char_length character_length charset coercibility collation concat \
            concat_ws convert format from_base64 hex insert instr lcase left length locate lower lpad ltrim \
            match oct octet_length ord quote regexp_instr regexp_replace regexp_substr repeat replace \
            reverse right rpad rtrim soundex space substring_index to_base64 ucase unhex upper weight_string \
            extractvalue updatexml",
    },
    // Dates and times. SLEEP waits without any effect.
    List {
        call: Call::Pure,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "addtime convert_tz current_date current_time current_timestamp date date_format datediff day \
            dayname dayofmonth dayofweek dayofyear from_days from_unixtime get_format hour last_day localtime \
            localtimestamp makedate maketime microsecond minute month monthname period_add period_diff \
            quarter sec_to_time second sleep str_to_date subtime time time_format time_to_sec timediff \
            timestamp timestampadd timestampdiff to_days to_seconds unix_timestamp utc_date utc_time \
            utc_timestamp week weekday weekofyear year yearweek",
    },
    // Digests, encryption, addresses, identity of user and session.
    List {
        call: Call::Pure,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "aes_decrypt aes_encrypt benchmark compress md5 sha sha1 sha2 uncompress uncompressed_length \
            inet_aton inet_ntoa inet6_aton inet6_ntoa is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6 \
            uuid uuid_short current_role current_user database schema user version last_value",
    },
    List {
        call: Call::Pure,
        mariadb: ALWAYS,
        mysql: 800,
        names: "json_array json_array_append json_array_insert json_contains json_contains_path json_depth \
            json_extract json_insert json_keys json_length json_merge_patch json_merge_preserve json_object \
            json_quote json_remove json_replace json_search json_set json_type json_unquote \
            json_valid json_value",
    },
    // Geometry that both have.
    List {
        call: Call::Pure,
        mariadb: ALWAYS,
        mysql: 800,
        names: "mbrcontains mbrdisjoint mbrequals mbrintersects mbroverlaps mbrtouches mbrwithin \
            st_area st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_buffer st_centroid st_contains \
            st_convexhull st_crosses st_difference st_dimension st_disjoint st_distance st_distance_sphere \
            st_endpoint st_envelope st_equals st_exteriorring st_geomcollfromtext st_geomcollfromwkb \
            st_geometrycollectionfromtext st_geometrycollectionfromwkb st_geometryfromtext \
            st_geometryfromwkb st_geometryn st_geometrytype st_geomfromgeojson st_geomfromtext \
            st_geomfromwkb st_interiorringn st_intersection st_intersects st_isclosed st_isempty st_issimple \
            st_length st_mlinefromtext st_mlinefromwkb st_mpointfromtext st_mpointfromwkb st_mpolyfromtext st_mpolyfromwkb st_multilinestringfromtext st_multilinestringfromwkb st_multipointfromtext st_multipointfromwkb st_multipolygonfromtext st_multipolygonfromwkb st_linefromtext st_linefromwkb st_linestringfromtext st_linestringfromwkb \
            st_numgeometries st_numinteriorrings st_numpoints st_overlaps st_pointfromtext st_pointfromwkb \
            st_pointn st_polyfromtext st_polyfromwkb st_polygonfromtext st_polygonfromwkb st_srid \
            st_startpoint st_symdifference st_touches st_union st_within st_x st_y",
    },
    // The first takes two coordinates, the others at least one geometry; MariaDB would look for a
    // stored function with other numbers of arguments.
    List { call: Call::Point, mariadb: ALWAYS, mysql: ALWAYS, names: "point" },
    List {
        call: Call::Geometries,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "geometrycollection linestring multilinestring multipoint multipolygon polygon",
    },
    List { call: Call::JsonTable, mariadb: ALWAYS, mysql: ALWAYS, names: "json_table" },
    // Only MariaDB.
    List {
        call: Call::Pure,
        mariadb: 1006,
        mysql: NEVER,
        names: "add_months chr column_add column_check column_create column_delete column_exists column_get column_json \
            column_list concat_operator_oracle decode decode_histogram decode_oracle des_decrypt des_encrypt \
            encode encrypt json_compact json_detailed json_exists json_loose json_merge json_query lengthb \
            lpad_oracle ltrim_oracle nvl nvl2 old_password password replace_oracle rownum rpad_oracle \
            rtrim_oracle schemas substr_oracle sys_guid to_char value \
            area asbinary astext aswkb aswkt boundary buffer centroid contains convexhull crosses dimension \
            disjoint endpoint envelope equals exteriorring geomcollfromtext geomcollfromwkb \
            geometrycollectionfromtext geometrycollectionfromwkb geometryfromtext geometryfromwkb geometryn \
            geometrytype geomfromtext geomfromwkb glength interiorringn intersects isclosed isempty isring \
            issimple linefromtext linefromwkb linestringfromtext linestringfromwkb mbrequal mlinefromtext \
            mlinefromwkb mpointfromtext mpointfromwkb mpolyfromtext mpolyfromwkb multilinestringfromtext \
            multilinestringfromwkb multipointfromtext multipointfromwkb multipolygonfromtext \
            multipolygonfromwkb numgeometries numinteriorrings numpoints overlaps pointfromtext pointfromwkb \
            pointn pointonsurface polyfromtext polyfromwkb polygonfromtext polygonfromwkb srid st_boundary \
            st_isring st_pointonsurface st_relate startpoint touches within x y",
    },
    List {
        call: Call::Pure,
        mariadb: 1007,
        mysql: NEVER,
        names: "json_equals json_normalize natural_sort_key sformat",
    },
    List { call: Call::Pure, mariadb: 1008, mysql: NEVER, names: "crc32c" },
    List { call: Call::Pure, mariadb: 1009, mysql: 800, names: "json_overlaps" },
    List { call: Call::Pure, mariadb: 1010, mysql: 800, names: "random_bytes json_pretty" },
    List { call: Call::Pure, mariadb: 1101, mysql: 800, names: "json_schema_valid format_pico_time" },
    List {
        call: Call::Pure,
        mariadb: 1102,
        mysql: NEVER,
        names: "json_array_intersect json_key_value json_object_filter_keys json_object_to_array",
    },
    List { call: Call::Pure, mariadb: 1103, mysql: NEVER, names: "kdf" },
    List {
        call: Call::Pure,
        mariadb: 1108,
        mysql: NEVER,
        names: "uuid_v4 uuid_v7 vec_distance vec_distance_cosine vec_distance_euclidean vec_fromtext vec_totext",
    },
    // Only MySQL, or later in MariaDB than any release told apart here.
    List {
        call: Call::Pure,
        mariadb: NEVER,
        mysql: 800,
        names: "any_value bin_to_uuid format_bytes geomcollection gtid_subset gtid_subtract icu_version \
            is_uuid json_schema_validation_report json_storage_free json_storage_size regexp_like \
            statement_digest statement_digest_text uuid_to_bin \
            mbrcoveredby mbrcovers st_collect st_frechetdistance st_geohash st_hausdorffdistance st_isvalid \
            st_latfromgeohash st_latitude st_lineinterpolatepoint st_lineinterpolatepoints st_longfromgeohash \
            st_longitude st_makeenvelope st_pointatdistance st_pointfromgeohash st_simplify st_swapxy st_transform st_validate",
    },
    List {
        call: Call::Pure,
        mariadb: NEVER,
        mysql: 900,
        names: "from_vector string_to_vector to_vector vector_dim vector_to_string",
    },
    // About the session.
    List { call: Call::ConnectionId, mariadb: ALWAYS, mysql: ALWAYS, names: "connection_id" },
    List { call: Call::FoundRows, mariadb: ALWAYS, mysql: ALWAYS, names: "found_rows" },
    List { call: Call::RowCount, mariadb: ALWAYS, mysql: ALWAYS, names: "row_count" },
    List { call: Call::LastInsertId, mariadb: ALWAYS, mysql: ALWAYS, names: "last_insert_id" },
    List { call: Call::Lock, mariadb: ALWAYS, mysql: ALWAYS, names: "get_lock" },
    List { call: Call::Unlock, mariadb: ALWAYS, mysql: ALWAYS, names: "release_lock release_all_locks" },
    List { call: Call::Sequence, mariadb: ALWAYS, mysql: NEVER, names: "nextval lastval setval" },
    // About one server.
    List {
        call: Call::Local,
        mariadb: ALWAYS,
        mysql: ALWAYS,
        names: "is_free_lock is_used_lock load_file master_pos_wait",
    },
    List {
        call: Call::Local,
        mariadb: 1006,
        mysql: NEVER,
        names: "binlog_gtid_pos master_gtid_wait wsrep_last_seen_gtid wsrep_last_written_gtid \
            wsrep_sync_wait_upto_gtid",
    },
    List {
        call: Call::Local,
        mariadb: NEVER,
        mysql: 800,
        names: "ps_current_thread_id ps_thread_id roles_graphml source_pos_wait \
            validate_password_strength wait_for_executed_gtid_set",
    },
];

const NAMES: [&str; LISTS.len()] = {
    let mut names = [""; LISTS.len()];
    let mut i = 0;
    while i < LISTS.len() {
        names[i] = LISTS[i].names;
        i += 1;
    }
    names
};

static TABLE: NameTable<1024> = NameTable::new(&NAMES);

/// The text between a name and its parenthesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    None,
    Spaces,
    /// Something else too. IGNORE_SPACE ignores spaces only.
    Comments,
}

/// What the unquoted, unqualified `name` before `(` is for the dialect's server.
#[inline]
pub(crate) fn call(name: &[u8], gap: Gap, dialect: &Dialect) -> Call {
    let Some(list) = TABLE.find(name).and_then(|index| LISTS.get(usize::from(index))) else {
        return Call::Unknown;
    };
    let release = dialect.server.release;
    let is_known = match dialect.server.family {
        Family::MariaDb => list.mariadb <= release,
        Family::MySql => list.mysql <= release,
        Family::Either => list.mariadb <= OLDEST.0 && list.mysql <= OLDEST.1,
    };
    if !is_known {
        return Call::Unknown;
    }
    match list.call {
        Call::PureTight => match gap {
            Gap::None => Call::Pure,
            Gap::Spaces if dialect.ignore_space => Call::Pure,
            Gap::Spaces | Gap::Comments => Call::Unknown,
        },
        call => call,
    }
}
