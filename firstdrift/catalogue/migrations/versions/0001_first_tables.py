"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "dumps",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("problems", sa.Text(), nullable=False),
        sa.Column("indexed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_dumps"),
        sa.UniqueConstraint("path", "fingerprint", name="uq_dumps_path_fingerprint"),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )
    op.create_table(
        "comparisons",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("golden_path", sa.Text(), nullable=False),
        sa.Column("target_path", sa.Text(), nullable=False),
        sa.Column("golden_id", sa.Integer(), nullable=True),
        sa.Column("target_id", sa.Integer(), nullable=True),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("findings", sa.Text(), nullable=True),
        sa.Column("counts", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Text(), nullable=True),
        sa.Column("golden_summary", sa.Text(), nullable=True),
        sa.Column("target_summary", sa.Text(), nullable=True),
        sa.Column("unmatched_golden", sa.Text(), nullable=False),
        sa.Column("unmatched_target", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("unreadable", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["golden_id"], ["dumps.id"], name="fk_comparisons_golden_id"),
        sa.ForeignKeyConstraint(["target_id"], ["dumps.id"], name="fk_comparisons_target_id"),
        sa.PrimaryKeyConstraint("id", name="pk_comparisons"),
    )
    op.create_index("ix_comparisons_golden_id", "comparisons", ["golden_id"])
    op.create_index("ix_comparisons_target_id", "comparisons", ["target_id"])
    op.create_table(
        "slices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dump_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("token", sa.Integer(), nullable=True),
        sa.Column("micro_step", sa.Integer(), nullable=True),
        sa.Column("directory", sa.Text(), nullable=False),
        sa.Column("order_origin", sa.Text(), nullable=True),
        sa.Column("problems", sa.Text(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=True),
        sa.Column("tensors", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["dump_id"], ["dumps.id"], name="fk_slices_dump_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_slices"),
        sa.UniqueConstraint("dump_id", "position", name="uq_slices_dump_id_position"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("comparison_id", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ready_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("leased_until", sa.Double(), nullable=True),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["comparisons.id"], name="fk_jobs_comparison_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_comparison_id_id", "jobs", ["comparison_id", "id"])
    op.create_index("ix_jobs_waiting", "jobs", ["state", "priority", "id"])
    op.create_table(
        "measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("golden_id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("measurement", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["golden_id"], ["slices.id"], name="fk_measurements_golden_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["target_id"], ["slices.id"], name="fk_measurements_target_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.UniqueConstraint("golden_id", "target_id", "key", name="uq_measurements_golden_id_target_id_key"),
    )
    op.create_index("ix_measurements_target_id", "measurements", ["target_id"])
    op.create_table(
        "nodes",
        sa.Column("slice_id", sa.Integer(), nullable=False),
        sa.Column("order", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("type_name", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("call", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("micro_step", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["slice_id"], ["slices.id"], name="fk_nodes_slice_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("slice_id", "order", name="pk_nodes"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_nodes_slice_id_name", "nodes", ["slice_id", "name"])
    op.create_table(
        "slice_pairs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("comparison_id", sa.Integer(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("golden_id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("judgement", sa.Text(), nullable=False),
        sa.Column("unmatched_golden", sa.Text(), nullable=False),
        sa.Column("unmatched_target", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("unreadable", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("pairs", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["comparisons.id"], name="fk_slice_pairs_comparison_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["golden_id"], ["slices.id"], name="fk_slice_pairs_golden_id"),
        sa.ForeignKeyConstraint(["target_id"], ["slices.id"], name="fk_slice_pairs_target_id"),
        sa.PrimaryKeyConstraint("id", name="pk_slice_pairs"),
    )
    op.create_index("ix_slice_pairs_golden_id", "slice_pairs", ["golden_id"])
    op.create_index("ix_slice_pairs_place", "slice_pairs", ["comparison_id", "position"])
    op.create_index("ix_slice_pairs_target_id", "slice_pairs", ["target_id"])
    op.create_index(
        "uq_slice_pairs_place",
        "slice_pairs",
        ["comparison_id", "position"],
        unique=True,
        sqlite_where=sa.text("complete = 1"),
        postgresql_where=sa.text("complete"),
    )
    op.create_table(
        "tensors",
        sa.Column("slice_id", sa.Integer(), nullable=False),
        sa.Column("node", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=True),
        sa.Column("has_statistics", sa.Boolean(), nullable=False),
        sa.Column("maximum", sa.Double(), nullable=True),
        sa.Column("minimum", sa.Double(), nullable=True),
        sa.Column("mean", sa.Double(), nullable=True),
        sa.Column("norm", sa.Double(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("container", sa.Text(), nullable=True),
        sa.Column("entry", sa.Text(), nullable=True),
        sa.Column("scalar", sa.Text(), nullable=True),
        sa.Column("requires_grad", sa.Boolean(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["slice_id"], ["slices.id"], name="fk_tensors_slice_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("slice_id", "node", "position", name="pk_tensors"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "pairs",
        sa.Column("slice_pair_id", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("golden_order", sa.Integer(), nullable=False),
        sa.Column("golden_position", sa.Integer(), nullable=False),
        sa.Column("target_order", sa.Integer(), nullable=False),
        sa.Column("target_position", sa.Integer(), nullable=False),
        sa.Column("joined", sa.Text(), nullable=True),
        sa.Column("transform", sa.Text(), nullable=False),
        sa.Column("incomparable", sa.Text(), nullable=True),
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("error", sa.Double(), nullable=True),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["measurement_id"], ["measurements.id"], name="fk_pairs_measurement_id"),
        sa.ForeignKeyConstraint(
            ["slice_pair_id"], ["slice_pairs.id"], name="fk_pairs_slice_pair_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("slice_pair_id", "index", name="pk_pairs"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_pairs_measurement_id", "pairs", ["measurement_id"])
    op.create_index("ix_pairs_slice_pair_id_row", "pairs", ["slice_pair_id", "row"])
    op.create_table(
        "rows",
        sa.Column("slice_pair_id", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("last", sa.Integer(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("order", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("type_name", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("golden", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("match", sa.Integer(), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("micro_step", sa.Integer(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("doubtful", sa.Boolean(), nullable=False),
        sa.Column("match_reasons", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("node_class", sa.Text(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("input_error", sa.Double(), nullable=True),
        sa.Column("parameter_error", sa.Double(), nullable=True),
        sa.Column("output_error", sa.Double(), nullable=True),
        sa.Column("amplification", sa.Double(), nullable=True),
        sa.Column("worst_pair", sa.Integer(), nullable=True),
        sa.Column("errors_below", sa.Integer(), nullable=False),
        sa.Column("warnings_below", sa.Integer(), nullable=False),
        sa.Column("incomparable_below", sa.Integer(), nullable=False),
        sa.Column("unmatched_below", sa.Integer(), nullable=False),
        sa.Column("origins_below", sa.Integer(), nullable=False),
        sa.Column("worst_below", sa.Text(), nullable=False),
        sa.Column("is_bad", sa.Boolean(), nullable=False),
        sa.Column("is_origin", sa.Boolean(), nullable=False),
        sa.Column("is_unmatched", sa.Boolean(), nullable=False),
        sa.Column("is_layer", sa.Boolean(), nullable=False),
        sa.Column("search", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["slice_pair_id"], ["slice_pairs.id"], name="fk_rows_slice_pair_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("slice_pair_id", "index", name="pk_rows"),
    )
    op.create_index(
        "ix_rows_bad",
        "rows",
        ["slice_pair_id", "order"],
        sqlite_where=sa.text("is_bad = 1"),
        postgresql_where=sa.text("is_bad"),
    )
    op.create_index(
        "ix_rows_layer",
        "rows",
        ["slice_pair_id", "order"],
        sqlite_where=sa.text("is_layer = 1"),
        postgresql_where=sa.text("is_layer"),
    )
    op.create_index(
        "ix_rows_origin",
        "rows",
        ["slice_pair_id", "order"],
        sqlite_where=sa.text("is_origin = 1"),
        postgresql_where=sa.text("is_origin"),
    )
    op.create_index("ix_rows_slice_pair_id_parent_index", "rows", ["slice_pair_id", "parent", "index"])
    op.create_index(
        "ix_rows_unmatched",
        "rows",
        ["slice_pair_id", "order"],
        sqlite_where=sa.text("is_unmatched = 1"),
        postgresql_where=sa.text("is_unmatched"),
    )
