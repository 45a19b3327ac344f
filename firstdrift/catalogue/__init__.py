"""The catalogue: what is known of dumps and comparisons, and what is to be done, in a database.

    engine = open_engine(database_url(data_directory)); upgrade(engine)
    with writing(engine, durable=True) as session:
        comparison_id = create_comparison(session, golden, target, Options())  # a worker goes on from here
    with reading(engine) as session:
        comparison = get_comparison(session, comparison_id)  # its .state, .job, .findings, .counts
        for pair in slice_pairs_of(session, comparison_id):  # its .judgement.logits makes a token strip
            outline = load_outline(session, pair.id)  # which rows are bad, and where an error begins

| room          | what it is for                                                                         |
| ------------- | -------------------------------------------------------------------------------------- |
| `engine`      | `open_engine`, `reading`, `writing`                                                    |
| `migrate`     | `upgrade`, once when a process starts                                                  |
| `comparisons` | create, list, delete, restore, compare again; results, trees, charts, previews of rules |
| `matches`     | match sets: versions, undo, redo, rename, delete; previews of what they change         |
| `dumps`       | indexed dumps, slices, nodes; dumps without a partner                                  |
| `jobs`        | the queue between pages and workers: progress, cancel, who is alive                    |
| `sharing`     | links to comparisons, and notes                                                        |
| `lookup`      | records of entries, and what is not there                                              |
| `tables`      | the tables; `columns`: exact floats, hostile names, JSON; `codec`: records as JSON     |

Readers wait for nobody. Whatever a person made is written with `durable=True`. To ask for what is not there
is a `NotInCatalogueError`, whatever it is.
"""
