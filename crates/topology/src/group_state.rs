//! Reads a server's own report of MySQL Group Replication.

/// A group has at most 9 members (MySQL manual, "Group Replication Limitations"); with more than this the list is not
/// believed.
const MEMBERS_MAX: usize = 32;
/// `VIEW_ID` has 60 characters, a member's UUID 36, a group's name 36; longer ones are none.
const NAME_CHARS_MAX: usize = 64;

/// A server's view of its group and of itself, as of one probe (MySQL manual, "Group Replication Monitoring"). The
/// default is a server that is in no group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// `server_uuid`: which of the members it is.
    pub server_uuid: String,
    /// `group_replication_group_name`
    pub group_name: String,
    /// `group_replication_single_primary_mode`
    pub single_primary: bool,
    /// `read_only` or `super_read_only`. The group sets the latter on all members but primaries.
    pub read_only: bool,
    /// The first part of `VIEW_ID`, made when the group is bootstrapped.
    pub view_prefix: String,
    /// The second part of `VIEW_ID`: counts the views since then.
    pub view_number: u64,
    /// The members of its view by id, itself included; each id once.
    pub members: Vec<GroupMember>,
    /// `COUNT_TRANSACTIONS_IN_QUEUE` of itself: transactions that wait for certification.
    pub certification_queue: u32,
    /// `COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE` of itself: transactions of others, certified and not yet applied.
    pub applier_queue: u32,
}

/// A member of a group as a server sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupMember {
    /// `MEMBER_ID`: its `server_uuid`.
    pub id: String,
    /// `MEMBER_STATE`
    pub state: MemberState,
    /// `MEMBER_ROLE` is PRIMARY. With several primaries that is every member.
    pub is_primary: bool,
}

/// `MEMBER_STATE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Works.
    Online,
    /// Receives what it has missed.
    Recovering,
    /// The plugin is there and does not run.
    Offline,
    /// An error has put it out of its group.
    Error,
    /// Is in the view, and the server that says so has lost contact with it.
    Unreachable,
    /// Anything else.
    #[default]
    Other,
}

/// A row of `performance_schema.replication_group_members` with its counters from `replication_group_member_stats`,
/// as text; NULL is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberRow<'a> {
    /// `MEMBER_ID`
    pub id: &'a str,
    /// `MEMBER_STATE`
    pub state: &'a str,
    /// `MEMBER_ROLE`
    pub role: &'a str,
    /// `VIEW_ID`
    pub view_id: &'a str,
    /// `COUNT_TRANSACTIONS_IN_QUEUE`
    pub certification_queue: &'a str,
    /// `COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE`
    pub applier_queue: &'a str,
}

impl GroupState {
    /// Reads variables (name and value) and the rows of the members. Values that make no sense leave their field at a
    /// default that never makes a server look better than it is; a list of members that makes none is left empty.
    pub fn from_rows<'a>(
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
        members: impl IntoIterator<Item = MemberRow<'a>>,
    ) -> Self {
        let mut state = Self { single_primary: true, ..Self::default() };
        let (mut read_only, mut super_read_only) = (true, false);
        for (name, value) in variables {
            let (is_off, value) = (is_off(value), value.trim());
            match name.to_ascii_lowercase().as_str() {
                "server_uuid" => state.server_uuid = bounded(value).to_ascii_lowercase(),
                "group_replication_group_name" => state.group_name = bounded(value).to_ascii_lowercase(),
                "group_replication_single_primary_mode" => state.single_primary = !is_off,
                "read_only" => read_only = !is_off,
                "super_read_only" => super_read_only = !is_off,
                _ => {}
            }
        }
        state.read_only = read_only || super_read_only;
        let rows: Vec<MemberRow<'_>> = members.into_iter().take(MEMBERS_MAX + 1).collect();
        if let Some(own) = rows.iter().find(|row| row.id.eq_ignore_ascii_case(&state.server_uuid)) {
            if let Some((prefix, number)) = view(own.view_id) {
                (state.view_prefix, state.view_number) = (prefix.to_owned(), number);
            }
            state.certification_queue = own.certification_queue.parse().unwrap_or(u32::MAX);
            state.applier_queue = own.applier_queue.parse().unwrap_or(u32::MAX);
        }
        state.members = believable(&rows);
        state
    }

    /// Itself among the members of its view.
    pub fn own(&self) -> Option<&GroupMember> {
        self.member(&self.server_uuid)
    }

    /// The member with an id.
    pub fn member(&self, id: &str) -> Option<&GroupMember> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Whether it says ONLINE of itself, in a view of a group.
    pub fn is_online(&self) -> bool {
        self.is_in_view() && self.own().is_some_and(|own| own.state == MemberState::Online)
    }

    /// Whether it reaches more than half of the members of its view. With half of them the group can't decide anything
    /// (MySQL manual, "Network Partitioning").
    pub fn has_quorum(&self) -> bool {
        2 * self.unreachable() < self.members.len()
    }

    /// Members of its view that it does not reach.
    pub fn unreachable(&self) -> usize {
        self.members.iter().filter(|member| !member.state.is_reachable()).count()
    }

    /// Which views it can be compared with: the group, and when it was bootstrapped.
    pub fn history(&self) -> String {
        format!("{} {}", self.group_name, self.view_prefix)
    }

    /// How far it is behind its group, in transactions.
    pub fn transactions_behind(&self) -> u32 {
        self.certification_queue.saturating_add(self.applier_queue)
    }

    fn is_in_view(&self) -> bool {
        self.view_number > 0 && !self.group_name.is_empty()
    }
}

impl MemberState {
    fn from_word(word: &str) -> Self {
        match word.to_ascii_uppercase().as_str() {
            "ONLINE" => Self::Online,
            "RECOVERING" => Self::Recovering,
            "OFFLINE" => Self::Offline,
            "ERROR" => Self::Error,
            "UNREACHABLE" => Self::Unreachable,
            _ => Self::Other,
        }
    }

    /// Whether the member takes part in the group's decisions.
    pub fn is_reachable(self) -> bool {
        matches!(self, Self::Online | Self::Recovering)
    }

    /// MySQL's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Online => "ONLINE",
            Self::Recovering => "RECOVERING",
            Self::Offline => "OFFLINE",
            Self::Error => "ERROR",
            Self::Unreachable => "UNREACHABLE",
            Self::Other => "unknown",
        }
    }
}

/// The members, or nothing if the rows can't be those of one group: too many, without an id, or with one id twice.
fn believable(rows: &[MemberRow<'_>]) -> Vec<GroupMember> {
    let member = |row: &MemberRow<'_>| GroupMember {
        id: bounded(row.id).to_ascii_lowercase(),
        state: MemberState::from_word(row.state),
        is_primary: row.role.eq_ignore_ascii_case("PRIMARY"),
    };
    let mut members: Vec<GroupMember> = rows.iter().map(member).collect();
    members.sort();
    let is_odd = members.len() > MEMBERS_MAX
        || members.iter().any(|member| member.id.is_empty())
        || members.windows(2).any(|pair| pair[0].id == pair[1].id);
    if is_odd { Vec::new() } else { members }
}

/// The two parts of a view id such as `17321956281234567:4`.
fn view(view_id: &str) -> Option<(&str, u64)> {
    let (prefix, number) = bounded(view_id).rsplit_once(':')?;
    Some((prefix, number.parse().ok().filter(|number| *number > 0)?)).filter(|_| !prefix.is_empty())
}

fn bounded(text: &str) -> &str {
    if text.len() > NAME_CHARS_MAX { "" } else { text }
}

fn is_off(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("OFF") || value.trim() == "0"
}
